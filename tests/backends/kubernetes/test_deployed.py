"""The manifests conform to the published OpenAPI, and give the rights that are used, and no others."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing

import pytest
import yaml

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.backends.kubernetes.api import ClusterApi
from perdure.backends.kubernetes.resources import JOBS
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import ClusterError
from perdure.model.actions import Cancel, Drain, Exclude, Hold, OutcomeStatus, Requeue
from perdure.model.identity import AttemptId
from tests.backends.kubernetes.deployed import FOLDER, SERVICE, documents, grant_rights
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import job
from tests.backends.kubernetes.standin.access import AccessAsked, covers
from tests.backends.kubernetes.standin.cluster import StandInCluster
from tests.backends.kubernetes.standin.schemas import VERSIONS, published


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_conforms_to_the_published_api(version: str) -> None:
    problems = {each["metadata"]["name"]: published(version).problems(each) for each in documents()}
    assert [found for found in problems.values() if found] == []
    assert len(documents()) == 12


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_puts_them_together() -> None:
    built = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=True).stdout
    made = list(yaml.safe_load_all(built))
    assert [problems for each in made if (problems := published().problems(each))] == []
    config = next(each["metadata"]["name"] for each in made if each["kind"] == "ConfigMap")
    deployment = next(each for each in made if each["kind"] == "Deployment")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": config}} in volumes
    assert {each["metadata"].get("namespace", "perdure") for each in made} == {"perdure"}


def test_the_rights_are_those_that_are_used(cluster: StandInCluster) -> None:
    """Of the built-in kinds; what is not there in this cluster (JobSets and others) is read nowhere."""
    grant_rights(cluster)
    harness = KubernetesHarness(cluster, SERVICE)
    with closing(harness.backend) as backend:
        backend.identity()
        failed = harness.ended(harness.submit(Program(exit_code=1)))
        backend.output(failed)
        harness.until(lambda seen: [j for j in seen.jobs if j.state.is_over])
        assert backend.perform(Requeue(failed.id)).status is OutcomeStatus.DONE
        assert backend.perform(Drain("node4", "why", "1")).status is OutcomeStatus.DONE
        waiting = harness.apply(job("wide", Program(node_count=4)))
        harness.until(lambda seen: [j for j in seen.jobs if j.job_id == waiting and j.state.is_waiting])
        nobody = AttemptId("kube", waiting, 0)
        assert backend.perform(Exclude(nobody, ("node1",))).status is OutcomeStatus.DONE
        assert backend.perform(Hold(nobody)).status is OutcomeStatus.DONE
        assert backend.perform(Cancel(nobody)).status is OutcomeStatus.DONE
    used = cluster.api.access.used[SERVICE]
    given = {
        AccessAsked(verb, group, resource)
        for _, rule in cluster.api.access.rules[SERVICE]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if "." not in group or (group.endswith("k8s.io") and "x-k8s" not in group)
    }
    assert {AccessAsked(each.verb, each.group, each.resource) for each in used} == given


def test_without_the_role_to_act_nothing_is_changed(cluster: StandInCluster) -> None:
    """Whoever only looks binds `perdure-look` alone."""
    look = next(each for each in documents() if each["metadata"]["name"] == "perdure-look" and "rules" in each)
    cluster.api.access.grant(SERVICE, "", look["rules"])
    harness = KubernetesHarness(cluster, SERVICE)
    with closing(harness.backend) as backend:
        job_id = harness.submit(Program(run_s=60.0))
        running = harness.until(lambda seen: [a for a in seen.attempts if a.id.job_id == job_id])[0]
        with pytest.raises(ClusterError, match=r"cannot get resource .leases"):
            backend.perform(Cancel(running.id))
        assert not harness.job(job_id).state.is_over


def test_nobody_may_do_what_is_not_named() -> None:
    rules = [rule for each in documents() for rule in each.get("rules", ())]
    for asked in (
        AccessAsked("get", "", "secrets"),
        AccessAsked("delete", "", "pods"),
        AccessAsked("create", "", "pods/exec"),
        AccessAsked("get", "coordination.k8s.io", "leases", name="another"),
        AccessAsked("get", "", "namespaces", name="team"),
    ):
        assert not any(covers(rule, asked) for rule in rules), asked
    assert not any("*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"]) for rule in rules)


def test_a_token_without_rights_is_refused_with_what_to_do(cluster: StandInCluster) -> None:
    grant_rights(cluster)
    api = ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig("stranger")))
    with closing(api), pytest.raises(ClusterError, match=r"cannot list.*rbac\.yaml"):
        api.list_all(JOBS)
