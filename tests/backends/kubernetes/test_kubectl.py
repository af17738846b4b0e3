"""The real kubectl against the stand-in: an independent word that it speaks the API; people do their part."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.model.actions import Drain, OutcomeStatus, Undrain
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState
from tests.backends.kubernetes.deployed import FOLDER
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import job
from tests.backends.kubernetes.standin.schemas import published


def programs() -> dict[str, str]:
    """Each kubectl of this machine, by its name. Those before 1.29 need OpenAPI v2 in protobuf, which is not served."""
    found = shutil.which("kubectl")
    if found is None:
        return {}
    beside = sorted(Path(found).resolve().parent.glob("kubectl.1.*[0-9]"))
    new = [path for path in beside if int(path.name.rpartition(".")[2]) >= OLDEST_MINOR and os.access(path, os.X_OK)]
    return {path.name: str(path) for path in new} or {"kubectl": found}


OLDEST_MINOR = 29
PROGRAMS = programs()
OLDEST_AND_NEWEST = sorted({*list(PROGRAMS)[:1], *list(PROGRAMS)[-1:]})
TIMEOUT_S = 60
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no kubectl here")
Kubectl = Callable[..., str]


@pytest.fixture(params=OLDEST_AND_NEWEST)
def kubectl(request: pytest.FixtureRequest, kube: KubernetesHarness, tmp_path: Path) -> Kubectl:
    """Runs kubectl as the cluster's administrator; what it prints."""
    config, home = kube.cluster.kubeconfig(), tmp_path / "home"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(config)}

    def run(*arguments: str, told: str = "") -> str:
        command = [PROGRAMS[request.param], *arguments]
        ended = subprocess.run(
            command, input=told, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def test_a_job_is_applied_waited_for_and_its_log_read(kubectl: Kubectl, kube: KubernetesHarness) -> None:
    document = job("mine", Program(says="all is well"))
    assert "created" in kubectl("apply", "-f", "-", told=json.dumps(document))
    kubectl("wait", "--for=condition=Complete", "job/mine", "--timeout=30s")
    assert kubectl("logs", "job/mine").strip() == "all is well"
    assert "unchanged" in kubectl("apply", "-f", "-", told=json.dumps(document))
    assert kube.job("team.mine").state is JobState.COMPLETED


def test_what_breaks_the_schema_is_refused(kubectl: Kubectl) -> None:
    document = job("mine", Program())
    document["spec"]["backofLimit"] = 3
    with pytest.raises(AssertionError, match="backofLimit"):
        kubectl("create", "-f", "-", told=json.dumps(document))
    kubectl("create", "-f", "-", told=json.dumps(job("fixed", Program(run_s=60.0))))
    with pytest.raises(AssertionError, match="immutable"):
        kubectl("patch", "job", "fixed", "--type=merge", "-p", '{"spec":{"completions":7,"parallelism":3}}')


def test_a_watch_of_kubectl_sees_the_pods(kubectl: Kubectl, kube: KubernetesHarness) -> None:
    kube.submit(Program(run_s=0.5))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod", "-l", "job-name=train-1", "--timeout=30s")


def test_a_strategic_patch_merges_by_name(kubectl: Kubectl, kube: KubernetesHarness) -> None:
    kubectl("label", "node", "node1", "rack=r1")
    kubectl("taint", "node", "node1", "site.org/test=yes:NoSchedule")
    kubectl("patch", "node", "node1", "-p", '{"metadata":{"annotations":{"note":"hello"}}}')
    found = kube.cluster.api.store.get("nodes", "", "node1")
    assert found["metadata"]["labels"]["rack"] == "r1"
    assert found["metadata"]["annotations"]["note"] == "hello"
    assert [taint["key"] for taint in found["spec"]["taints"]] == ["site.org/test"]
    assert published().problems(found) == []


def test_a_person_drains_a_node_and_a_job_is_preempted(kubectl: Kubectl, kube: KubernetesHarness) -> None:
    """What kubectl cordons is not Perdure's to return."""
    job_id = kube.submit(Program(run_s=600.0))
    running = kube.until(lambda seen: [a for a in seen.attempts if a.id.job_id == job_id])[0]
    (name,) = running.nodes
    kubectl("drain", name, "--ignore-daemonsets", "--timeout=30s")
    ended = kube.ended(job_id)
    assert (ended.id, ended.state) == (running.id, AttemptState.PREEMPTED)
    second = kube.until(lambda seen: [a for a in seen.attempts if a.id.incarnation > running.id.incarnation])[0]
    assert name not in second.nodes
    assert kube.backend.perform(Undrain(name, "1")).status is OutcomeStatus.DONE
    node = next(node for node in kube.backend.observe(0.0).nodes if node.name == name)
    assert (node.state, node.reason) == (NodeState.DRAINED, "cordoned")
    kubectl("uncordon", name)


def test_what_perdure_drained_is_seen_by_people(kubectl: Kubectl, kube: KubernetesHarness) -> None:
    kube.backend.perform(Drain("node1", "Xid 79 on GPU 3", "1"))
    told = json.loads(kubectl("get", "node", "node1", "-o", "json"))
    assert [taint["key"] for taint in told["spec"]["taints"]] == ["perdure.dev/drained"]
    assert told["metadata"]["annotations"]["perdure.dev/reason"] == "Xid 79 on GPU 3"


def test_the_manifests_can_be_applied(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(FOLDER / "rbac.yaml"))
    kubectl("apply", "-n", "perdure", "-f", str(FOLDER / "service.yaml"))
    assert "perdure-look" in kubectl("get", "clusterroles", "-o", "name")
