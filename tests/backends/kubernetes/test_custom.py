"""JobSets, PyTorchJobs and Kueue's Workloads, where the cluster has them. Their controllers are played by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.model.actions import Cancel, Exclude, Extend, Hold, OutcomeStatus, Release, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import AttemptState, JobState
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import NAMESPACE, job
from tests.backends.kubernetes.standin.cluster import StandInCluster
from tests.backends.kubernetes.standin.controllers import set_condition
from tests.backends.kubernetes.standin.kinds import custom_kinds
from tests.backends.kubernetes.standin.store import ApiProblem

KUEUE = ("v1beta2", "v1beta1")
MANAGED = {"perdure.dev/managed": "true"}
TEMPLATE = job("x", Program())["spec"]["template"]


@pytest.fixture
def kueue(request: pytest.FixtureRequest) -> str:
    """The version of Kueue's API that the cluster serves."""
    return str(getattr(request, "param", KUEUE[0]))


@pytest.fixture
def kube(open_stand_in: Callable[..., StandInCluster], kueue: str) -> Iterator[KubernetesHarness]:
    harness = KubernetesHarness(open_stand_in(kueue=kueue))
    yield harness
    harness.backend.close()


JOBSET_PLACES = (("0", "0"), ("0", "1"), ("1", "0"), ("2", "0"))
"""The pods of `job_set`: the number of the Job among all of them, and the pod's index in that."""


def job_set(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": NAMESPACE, "labels": dict(MANAGED)},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [
                {
                    "name": name,
                    "replicas": replicas,
                    "template": {"spec": {"parallelism": pods, "completions": pods, "template": TEMPLATE}},
                }
                for name, replicas, pods in (("readers", 1, 2), ("trainers", 2, 1))
            ],
        },
        "status": status,
    }


def pytorch_job() -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": NAMESPACE, "labels": dict(MANAGED)},
        "spec": {
            "runPolicy": {"activeDeadlineSeconds": 3600},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": TEMPLATE},
                "Worker": {"replicas": 1, "template": TEMPLATE},
            },
        },
    }


def add_pod(kube: KubernetesHarness, name: str, code: int, labels: dict[str, str], owner: dict[str, Any]) -> None:
    """A pod as its controller would make it: it runs for a while and ends with a code."""
    container = {**TEMPLATE["spec"]["containers"][0], "args": ["hello", "0.5", str(code)]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "containers": [container]},
        "status": {"phase": "Pending"},
    }
    kube.cluster.api.store.create("pods", pod)


def owner_of(kube: KubernetesHarness, plural: str, kind: str, version: str) -> dict[str, Any]:
    uid = kube.cluster.api.store.get(plural, NAMESPACE, "train")["metadata"]["uid"]
    return {"apiVersion": version, "kind": kind, "name": "train", "uid": uid, "controller": True}


def conclude(kube: KubernetesHarness, plural: str, kind: str, reason: str) -> None:
    with kube.cluster.api.store.lock:
        document = kube.cluster.api.store.get(plural, NAMESPACE, "train")
        set_condition(document, kind, "True", reason, f"{kind} by the test")
        kube.cluster.api.store.update(plural, document)


def phases(kube: KubernetesHarness) -> set[str]:
    return {each["status"]["phase"] for each in kube.cluster.api.store.all_of("pods")}


def test_a_jobset_is_one_job_of_all_its_pods(kube: KubernetesHarness) -> None:
    """Its restarts are attempts; failed for good it is put back whole, off a node."""
    job_id = kube.apply(job_set())
    assert job_id == "team.train:jobset"
    waiting = kube.until(lambda seen: [j for j in seen.jobs if j.job_id == job_id])[0]
    assert (waiting.node_count, waiting.gpus, waiting.state) == (4, 16, JobState.PENDING)
    owner = owner_of(kube, "jobsets", "JobSet", "jobset.x-k8s.io/v1alpha2")
    for restart, code in (("0", 1), ("1", 3)):
        for number, index in JOBSET_PLACES:
            labels = {
                "jobset.sigs.k8s.io/jobset-name": "train",
                "jobset.sigs.k8s.io/jobset-uid": owner["uid"],
                "jobset.sigs.k8s.io/job-global-index": number,
                "jobset.sigs.k8s.io/restart-attempt": restart,
                "batch.kubernetes.io/job-completion-index": index,
            }
            add_pod(kube, f"train-{restart}-{number}-{index}", code if index == "0" else 0, labels, owner)
        kube.until(lambda _: phases(kube) == {"Failed", "Succeeded"})
    conclude(kube, "jobsets", "Failed", "FailedJobs")
    kube.until(lambda seen: [j for j in seen.jobs if j.state is JobState.FAILED])
    mine = sorted(kube.backend.observe(0.0).attempts, key=lambda attempt: attempt.id)
    assert [(a.state, a.exit_code, len(a.nodes)) for a in mine] == [
        (AttemptState.FAILED, 1, 4),
        (AttemptState.FAILED, 3, 4),
    ]
    ranks = {f"train-1-{number}-{index}": str(rank) for rank, (number, index) in enumerate(JOBSET_PLACES)}
    logs = {file.path.split("/")[3]: file.rank for file in kube.backend.output(mine[-1]).files}
    first = mine[-1].stdout.split("/")[3]
    assert logs == ranks | {first: ""}
    action = Requeue(mine[-1].id, exclude=("node1",))
    assert kube.backend.perform(action).status is OutcomeStatus.DONE
    assert kube.backend.perform(action).status is OutcomeStatus.DONE
    made = kube.cluster.api.store.get("jobsets", NAMESPACE, "train")
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert '"metadata.name", "operator": "NotIn", "values": ["node1"]' in str(spec["affinity"]).replace("'", '"')
    assert kube.job(job_id).excluded == ("node1",)
    nobody = AttemptId("kube", job_id, mine[-1].id.incarnation)
    assert kube.backend.perform(Exclude(nobody, ("node2",))).status is OutcomeStatus.REFUSED
    assert kube.backend.perform(Hold(nobody)).status is OutcomeStatus.DONE
    assert kube.job(job_id).state is JobState.HELD


def test_a_pytorchjob_is_one_job_of_its_replicas(kube: KubernetesHarness) -> None:
    job_id = kube.apply(pytorch_job())
    owner = owner_of(kube, "pytorchjobs", "PyTorchJob", "kubeflow.org/v1")
    for replica, code in (("master", 0), ("worker", 1)):
        labels = {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/replica-type": replica,
            "training.kubeflow.org/replica-index": "0",
        }
        add_pod(kube, f"train-{replica}-0", code, labels, owner)
    running = kube.until(lambda seen: [a for a in seen.attempts if not a.state.is_over])[0]
    assert len(running.nodes) == 2
    assert kube.backend.perform(Extend(running.id, 7200.0)).status is OutcomeStatus.DONE
    assert kube.job(job_id).walltime_s == 7200.0
    conclude(kube, "pytorchjobs", "Failed", "PyTorchJobFailed")
    ended = kube.ended(job_id)
    assert (ended.state, ended.exit_code) == (AttemptState.FAILED, 1)
    assert kube.backend.perform(Cancel(ended.id)).status is OutcomeStatus.SUPERSEDED


def workload(uid: str, version: str) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"active": True, "queueName": "gpus", "podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]},
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "couldn't assign flavors",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]
        },
    }  # fmt: skip


@pytest.mark.parametrize("kueue", KUEUE, indirect=True)
def test_what_waits_in_a_queue_of_kueue_is_not_held(kube: KubernetesHarness, kueue: str) -> None:
    """Kueue suspends it; Perdure holds it by its Workload, and never resumes it by itself."""
    document = job("train", Program(), suspend=True)
    document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gpus"
    nobody = AttemptId("kube", kube.apply(document), 0)
    kube.until(lambda seen: seen.jobs)
    assert kube.backend.perform(Hold(nobody)).status is OutcomeStatus.REFUSED
    uid = kube.cluster.api.store.get("jobs", NAMESPACE, "train")["metadata"]["uid"]
    kube.cluster.api.store.create("workloads", workload(uid, kueue))
    waiting = kube.until(lambda seen: [j for j in seen.jobs if "flavors" in j.reason])[0]
    assert (waiting.state, waiting.partition) == (JobState.PENDING, "gpus")
    assert kube.backend.perform(Hold(nobody)).status is OutcomeStatus.DONE
    assert kube.job(nobody.job_id).state is JobState.HELD
    assert not kube.cluster.api.store.get("workloads", NAMESPACE, "job-train")["spec"]["active"]
    assert kube.backend.perform(Release(nobody)).status is OutcomeStatus.DONE
    assert kube.job(nobody.job_id).state is JobState.PENDING
    assert kube.cluster.api.store.get("jobs", NAMESPACE, "train")["spec"]["suspend"]


@pytest.mark.parametrize("kueue", KUEUE, indirect=True)
def test_a_job_that_kueue_evicts_was_preempted(kube: KubernetesHarness, kueue: str) -> None:
    document = job("train", Program(run_s=600.0))
    document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gpus"
    job_id = kube.apply(document)
    kube.until(lambda seen: [a for a in seen.attempts if not a.state.is_over])
    uid = kube.cluster.api.store.get("jobs", NAMESPACE, "train")["metadata"]["uid"]
    evicted = workload(uid, kueue)
    set_condition(evicted, "Evicted", "True", "Preempted", "by a workload of higher priority")
    made = kube.cluster.api.store.create("workloads", evicted)
    assert kube.backend._mirrors["workloads"].reach(made["metadata"]["resourceVersion"], 10.0)
    with kube.cluster.api.store.lock:
        changed = kube.cluster.api.store.get("jobs", NAMESPACE, "train")
        changed["spec"]["suspend"] = True
        kube.cluster.api.store.update("jobs", changed)
    ended = kube.ended(job_id)
    assert ended.state is AttemptState.PREEMPTED
    assert "evicted by Kueue: Preempted" in ended.reason


def test_a_cluster_with_both_versions_of_kueue_is_read_in_the_newer(
    open_stand_in: Callable[..., StandInCluster],
) -> None:
    cluster = open_stand_in(kueue=KUEUE[0])
    cluster.api.kinds += (custom_kinds(KUEUE[1])[-1],)
    harness = KubernetesHarness(cluster)
    harness.until(lambda seen: seen.nodes)
    harness.backend.close()
    lists = {path for _, path in cluster.api.requests if path.partition("?")[0].endswith("/workloads")}
    assert lists
    assert all("/v1beta2/" in path for path in lists)


def test_objects_of_other_projects_are_held_to_their_published_types(
    open_stand_in: Callable[..., StandInCluster],
) -> None:
    """So a field that Perdure misspelled would be noticed."""
    store = open_stand_in(kueue=KUEUE[0]).api.store
    misspelled = job_set()
    misspelled["spec"]["suspended"] = True
    old = workload("u", KUEUE[0])
    old["spec"]["priorityClassName"] = "high"  # of v1beta1
    alien = pytorch_job()
    alien["spec"]["pytorchReplicaSpecs"]["Chief"] = {"replicas": 1, "template": TEMPLATE}
    empty = workload("u", KUEUE[0])
    empty["spec"]["podSets"] = []
    for plural, document, what in (
        ("jobsets", misspelled, "suspended"),
        ("workloads", old, "priorityClassName"),
        ("workloads", empty, "podSets"),
        ("workloads", workload("u", KUEUE[1]), "no kind Workload in kueue.x-k8s.io/v1beta1"),
        ("pytorchjobs", alien, "Chief"),
    ):
        with pytest.raises(ApiProblem, match=what):
            store.create(plural, document)
