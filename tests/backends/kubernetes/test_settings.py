"""Each setting of Kubernetes does something that can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.backends.kubernetes.api import ClusterApi, config_of
from perdure.backends.kubernetes.resources import PODS
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import ClusterBusy, ConfigError
from perdure.model.actions import Drain
from perdure.model.jobs import AttemptState
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import job
from tests.backends.kubernetes.standin.cluster import StandInCluster


def test_the_cluster_and_context_of_the_kubeconfig_are_used(tmp_path: Path) -> None:
    servers = {"one": "http://127.0.0.1:1", "two": "http://127.0.0.1:2"}
    file = tmp_path / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "clusters": [{"name": name, "cluster": {"server": url}} for name, url in servers.items()],
                "users": [{"name": "me", "user": {"token": "t"}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in servers],
            }
        )
    )
    assert config_of(KubernetesSettings(kubeconfig=file)).cluster.server == servers["one"]
    assert config_of(KubernetesSettings(kubeconfig=file, context="two")).cluster.server == servers["two"]
    with pytest.raises(ConfigError, match="no cluster can be read from it"):
        config_of(KubernetesSettings(kubeconfig=file, context="three"))
    with pytest.raises(ConfigError, match="no cluster can be read from it"):
        config_of(KubernetesSettings(kubeconfig=tmp_path / "none"))


def seen_with(cluster: StandInCluster, **settings: Any) -> list[str]:
    with closing(KubernetesHarness(cluster, **settings).backend) as backend:
        return sorted(job.job_id for job in backend.observe(0.0).jobs)


def test_jobs_of_the_namespace_and_selector_are_seen(kube: KubernetesHarness) -> None:
    """A Job that is not labelled is not looked at, whosever it is."""
    for name, namespace, labels in (
        ("mine", "team", {"perdure.dev/managed": "true"}),
        ("other", "default", {"perdure.dev/managed": "true"}),
        ("quiet", "team", {"tier": "gold"}),
    ):
        document = job(name, Program(run_s=60.0))
        document["metadata"] |= {"namespace": namespace, "labels": labels}
        kube.apply(document)
    assert seen_with(kube.cluster) == ["default.other", "team.mine"]
    assert seen_with(kube.cluster, namespace="team") == ["team.mine"]
    assert seen_with(kube.cluster, selector="tier=gold") == ["team.quiet"]
    assert seen_with(kube.cluster, selector="") == ["default.other", "team.mine", "team.quiet"]


def test_a_label_names_the_owner_only_where_the_site_says_so(kube: KubernetesHarness) -> None:
    document = job("mine", Program())
    document["metadata"]["labels"]["site.org/owner"] = "ada"
    job_id = kube.apply(document)
    assert kube.ended(job_id).user == "team"
    with closing(KubernetesHarness(kube.cluster, owner_label="site.org/owner").backend) as backend:
        seen = backend.observe(0.0)
    assert [(job.user, job.account) for job in seen.jobs] == [("ada", "team")]
    assert [attempt.user for attempt in seen.attempts] == ["ada"]


def test_the_lease_is_in_its_namespace(cluster: StandInCluster) -> None:
    with closing(KubernetesHarness(cluster, lease_namespace="kube-system").backend) as backend:
        backend.perform(Drain("node1", "why", "1"))
        lease = cluster.api.store.get("leases", "kube-system", "perdure")
    assert lease["spec"]["holderIdentity"] == "test:1"


def test_an_answer_is_waited_for_as_long_as_is_set(cluster: StandInCluster) -> None:
    api = ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig(), timeout_s=1.0))
    with closing(api), cluster.api.store.lock:  # lists need it
        began_s = time.monotonic()
        with pytest.raises(ClusterBusy, match="no answer"):
            api.list_all(PODS)
        assert time.monotonic() - began_s >= 1.0


@pytest.mark.parametrize(("patience_s", "state"), [(0.0, AttemptState.LAUNCH_FAILED), (300.0, AttemptState.RUNNING)])
def test_an_image_that_is_not_there_fails_the_launch_after_patience(
    open_stand_in: Callable[..., StandInCluster], patience_s: float, state: AttemptState
) -> None:
    cluster = open_stand_in()
    harness = KubernetesHarness(cluster, launch_patience_s=patience_s)
    with closing(harness.backend):
        document = job("mine", Program(run_s=60.0))
        document["spec"]["template"]["spec"]["containers"][0]["image"] = "missing/trainer"
        job_id = harness.apply(document)
        found = harness.until(
            lambda seen: [a for a in seen.attempts if a.id.job_id == job_id and "ImagePullBackOff" in a.reason]
        )
        assert found[0].state is state
