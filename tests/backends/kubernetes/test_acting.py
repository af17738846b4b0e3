"""Actions on a cluster that others use, too, and that fails in between: once and only once, and nothing lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.check_harness import Program
from perdure.backends.kubernetes import actor, lease
from perdure.backends.kubernetes.api import ClusterApi
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import ClusterBusy
from perdure.model.actions import (
    Action,
    Cancel,
    Comment,
    Drain,
    Exclude,
    Hold,
    OutcomeStatus,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, JobState
from tests.backends.kubernetes.harness import KubernetesHarness
from tests.backends.kubernetes.manifests import NAMESPACE, job
from tests.backends.kubernetes.standin.cluster import StandInCluster
from tests.backends.kubernetes.standin.controllers import may_run
from tests.backends.kubernetes.standin.store import ApiProblem

CONFLICT = ApiProblem(409, "Conflict", "the object has been modified")


def failed(kube: KubernetesHarness, **spec: Any) -> Attempt:
    """The attempt of a job that has failed for good."""
    job_id = kube.apply(job("train", Program(exit_code=1), **spec))
    attempt = kube.ended(job_id)
    kube.until(lambda seen: [j for j in seen.jobs if j.job_id == job_id and j.state is JobState.FAILED])
    return attempt


def writes(kube: KubernetesHarness) -> list[str]:
    """Requests that changed something, but for the Lease."""
    return [
        f"{method} {path}" for method, path in kube.cluster.api.requests if method != "GET" and "/leases" not in path
    ]


def jobs(kube: KubernetesHarness) -> list[str]:
    return [each["metadata"]["name"] for each in kube.cluster.api.store.all_of("jobs")]


class ServiceKilled(BaseException):
    """The service dies at this request."""


def killed_at(kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch, number: int, action: Action) -> bool:
    """Perform an action and die right after the write of that number was done; False where there are fewer."""
    api = kube.backend._api
    answer, count = api._answer, 0

    def counted(method: str, path: str, *rest: Any) -> bytes:
        nonlocal count
        answered = answer(method, path, *rest)
        if method != "GET" and "/leases" not in path:
            count += 1
            if count == number:
                raise ServiceKilled
        return answered

    with monkeypatch.context() as patch:
        patch.setattr(api, "_answer", counted)
        try:
            kube.backend.perform(action)
        except ServiceKilled:
            return True
    return False


def again(cluster: StandInCluster) -> KubernetesHarness:
    """The service after a restart."""
    return KubernetesHarness(cluster)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_requeue_is_finished_wherever_the_service_was_killed(
    kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """By performing it again after the restart: one new attempt, on other nodes, and no copy is left."""
    first = failed(kube)
    action = Requeue(first.id, exclude=first.nodes)
    assert killed_at(kube, monkeypatch, number, action)
    kube.backend.close()
    with closing(again(kube.cluster).backend) as backend:
        if (told := backend.lookup(action)) is None:
            assert backend.perform(action).status is OutcomeStatus.DONE
        else:
            assert told.status is OutcomeStatus.DONE
        kube.backend = backend
        second = kube.ended(first.id.job_id, after=first.id.incarnation)
        assert not set(second.nodes) & set(first.nodes)
        assert backend.perform(action).status is OutcomeStatus.DONE
        assert jobs(kube) == ["train"]
        mine = [a for a in backend.observe(0.0).attempts if a.id.job_id == first.id.job_id]
        assert [a.id for a in mine] == [first.id, second.id]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_requeue_that_nobody_asks_for_again_loses_no_job(
    kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The service comes back and looks: the job is there again, or still, and no copy is left."""
    monkeypatch.setattr(actor, "STASH_S", 0.0)
    first = failed(kube)
    assert killed_at(kube, monkeypatch, number, Requeue(first.id))
    kube.backend.close()
    with closing(again(kube.cluster).backend) as backend:
        kube.backend = backend
        backend.perform(Drain("node4", "so that it acts", "1"))
        kube.until(lambda _: jobs(kube) == ["train"])
        kube.until(lambda seen: [j for j in seen.jobs if j.state is JobState.FAILED])


def test_a_requeue_does_not_give_out_retries_of_kubernetes_twice(kube: KubernetesHarness) -> None:
    """A Job with two retries of its own fails three times; put back it has none left."""
    job_id = kube.apply(job("train", Program(exit_code=1), backoffLimit=2))
    kube.until(lambda seen: [j for j in seen.jobs if j.job_id == job_id and j.state is JobState.FAILED])
    mine = [a for a in kube.backend.observe(0.0).attempts if a.id.job_id == job_id]
    assert [a.state for a in mine] == [AttemptState.FAILED] * 3
    assert kube.backend.perform(Requeue(mine[0].id)).status is OutcomeStatus.SUPERSEDED
    assert kube.backend.perform(Requeue(mine[-1].id)).status is OutcomeStatus.DONE
    kube.ended(job_id, after=mine[-1].id.incarnation)
    assert kube.cluster.api.store.get("jobs", NAMESPACE, "train")["spec"]["backoffLimit"] == 0
    seen = kube.until(lambda seen: seen if seen.jobs[0].state is JobState.FAILED else None)
    assert len(seen.attempts) == 4


def test_what_the_controller_tries_again_is_not_put_back(kube: KubernetesHarness) -> None:
    kube.cluster.control.retry_s = 3600.0
    job_id = kube.apply(job("train", Program(exit_code=1), backoffLimit=2))
    attempt = kube.ended(job_id)
    assert kube.job(job_id).state is JobState.PENDING
    outcome = kube.backend.perform(Requeue(attempt.id))
    assert (outcome.status, "tries again" in outcome.detail) == (OutcomeStatus.SUPERSEDED, True)


POLICY = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"podFailurePolicy": POLICY, "backoffLimit": 3}}, "podFailurePolicy"),
        ({"spec": {"completions": 4, "parallelism": 1}}, "queue of work"),
        ({"spec": {"backoffLimitPerIndex": 0, "backoffLimit": 0}}, "one by one"),
        ({"metadata": {"annotations": {"perdure.dev/retry": "never"}}}, "perdure.dev/retry=never"),
        (
            {"metadata": {"ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
            ]}},
            "CronJob nightly manages it",
        ),
    ],
)  # fmt: skip
def test_whose_retry_is_not_ours_is_refused(kube: KubernetesHarness, change: dict[str, Any], why: str) -> None:
    document = job("train", Program(exit_code=1))
    for part, fields in change.items():
        document[part] |= fields
    job_id = kube.apply(document)
    attempt = kube.ended(job_id)
    seen = kube.until(lambda seen: seen if seen.jobs[0].state is JobState.FAILED else None)
    assert not seen.jobs[0].may_requeue
    outcome = kube.backend.perform(Requeue(attempt.id))
    assert outcome.status is OutcomeStatus.REFUSED
    assert why in outcome.detail


def test_a_job_that_did_not_opt_in_is_left_alone(cluster: StandInCluster) -> None:
    kube = KubernetesHarness(cluster, selector="")
    with closing(kube.backend) as backend:
        document = job("theirs", Program(run_s=600.0))
        document["metadata"]["labels"] = {}
        running = AttemptId("kube", kube.apply(document), 0)
        for action in (Cancel(running), Hold(running), Comment(running, "hello"), Exclude(running, ("node1",))):
            assert backend.perform(action).status is OutcomeStatus.REFUSED, action.kind
        assert writes(kube) == []


def test_a_change_by_others_is_read_again(kube: KubernetesHarness) -> None:
    first = failed(kube)
    kube.backend.perform(Drain("node4", "first", "1"))
    kube.cluster.api.faults.refusals = [CONFLICT] * 3
    assert kube.backend.perform(Drain("node3", "second", "1")).status is OutcomeStatus.DONE
    kube.cluster.api.faults.refusals = [CONFLICT] * 50
    with pytest.raises(ClusterBusy, match="all the time"):
        kube.backend.perform(Comment(first.id, "perdure: hello"))
    kube.cluster.api.faults.refusals = []
    assert kube.backend.perform(Comment(first.id, "perdure: hello")).status is OutcomeStatus.DONE
    notes = kube.cluster.api.store.get("jobs", NAMESPACE, "train")["metadata"]["annotations"]
    assert notes["perdure.dev/comment"] == "perdure: hello"


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_an_answer_that_is_lost_is_looked_up(kube: KubernetesHarness, lost: int) -> None:
    first = failed(kube)
    kube.backend.perform(Drain("node4", "holds the lease", "1"))
    action = Requeue(first.id)
    kube.cluster.api.faults.lost_answers = lost
    for _ in range(lost + 1):
        try:
            outcome = kube.backend.lookup(action) or kube.backend.perform(action)
            break
        except ClusterBusy:
            continue
    assert outcome.status is OutcomeStatus.DONE
    kube.ended(first.id.job_id, after=first.id.incarnation)
    seen = kube.until(lambda seen: seen if seen.jobs[0].state is JobState.FAILED else None)
    assert len(seen.attempts) == 2


def test_a_delay_is_over_when_it_is(kube: KubernetesHarness) -> None:
    """The service resumes the Job then; a dead one does so when it is back."""
    first = failed(kube)
    assert kube.backend.perform(Requeue(first.id, delay_s=1.5)).status is OutcomeStatus.DONE
    assert kube.job(first.id.job_id).state is JobState.PENDING
    made_s = time.time()
    second = kube.ended(first.id.job_id, after=first.id.incarnation)
    assert second.start_s >= made_s - 1.0 + 0.5  # starts are told in whole seconds


COPY = {"perdure.dev/managed": "true", "perdure.dev/stash": "forged"}


@pytest.mark.parametrize(
    "kept",
    [
        '{"metadata": {"name": "made", "namespace": "others"}}',
        '{"metadata": {"name": "made", "labels": [1]}}',
        '{"metadata": {"name": "made", "labels": {"a": "\\ud800"}}}',
        "[" * 100_000,
        '{"metadata": ' + "[" * 100_000,
    ],
)
def test_what_an_owner_writes_as_a_copy_holds_up_nobody_else(
    kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """Such a copy is left alone for a while; one that cannot be finished ended the round before others' jobs."""
    monkeypatch.setattr(actor, "STASH_S", 0.0)
    forged = job("a-forged", Program(), suspend=True)
    forged["metadata"] |= {"labels": COPY, "annotations": {"perdure.dev/stashed": kept}}
    kube.apply(forged)
    first = failed(kube)
    assert kube.backend.perform(Requeue(first.id, delay_s=0.5)).status is OutcomeStatus.DONE
    assert kube.ended(first.id.job_id, after=first.id.incarnation)
    assert jobs(kube) == ["a-forged", "train"]


def test_a_job_that_is_not_to_go_holds_up_nobody_else(kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy whose name is another job's that is being deleted, and never goes, is not waited for in each look."""
    monkeypatch.setattr(actor, "STASH_S", 0.0)
    stays = job("stays", Program(run_s=600.0))
    stays["metadata"]["finalizers"] = ["team/never"]
    kube.apply(stays)
    kube.cluster.api.store.delete("jobs", NAMESPACE, "stays")
    forged = job("a-forged", Program(), suspend=True)
    notes = {"perdure.dev/stashed": '{"metadata": {"name": "stays", "annotations": {"perdure.dev/done-x": "y"}}}'}
    forged["metadata"] |= {"labels": COPY, "annotations": notes}
    kube.apply(forged)
    kube.backend.perform(Drain("node4", "so that it acts", "1"))
    naps: list[float] = []
    monkeypatch.setattr(actor, "time", SimpleNamespace(monotonic=time.monotonic, sleep=naps.append))
    kube.backend.observe(0.0)
    assert not naps


def test_nobody_makes_a_job_of_another_user_by_a_copy(cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where users share a namespace, the site labels what they write; a copy makes jobs of that user alone."""
    monkeypatch.setattr(actor, "STASH_S", 0.0)
    with closing(KubernetesHarness(cluster, owner_label="who").backend) as backend:
        kube = KubernetesHarness(cluster)
        kube.backend.close()
        kube.backend = backend
        for name, owner in (("mine", "eve"), ("theirs", "mira")):
            forged = job(f"copy-{name}", Program(run_s=600.0), suspend=True)
            kept = json.dumps({"metadata": {"name": name, "labels": {"who": owner}}})
            forged["metadata"] |= {"labels": {**COPY, "who": "eve"}, "annotations": {"perdure.dev/stashed": kept}}
            kube.apply(forged)
        backend.perform(Drain("node4", "so that it acts", "1"))
        kube.until(lambda _: "mine" in jobs(kube))
        assert "theirs" not in jobs(kube)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_copy_is_its_owners_wherever_the_service_was_killed(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(actor, "STASH_S", 0.0)
    kube = KubernetesHarness(cluster, owner_label="who")
    document = job("train", Program(exit_code=1))
    document["metadata"]["labels"]["who"] = "mira"
    first = kube.ended(kube.apply(document))
    kube.until(lambda seen: [each for each in seen.jobs if each.state is JobState.FAILED])
    assert killed_at(kube, monkeypatch, number, Requeue(first.id, user="mira"))
    kube.backend.close()
    with closing(KubernetesHarness(cluster, owner_label="who").backend) as backend:
        kube.backend = backend
        assert backend.perform(Requeue(first.id, user="mira")).status is OutcomeStatus.DONE
        second = kube.ended(first.id.job_id, after=first.id.incarnation)
        assert (second.user, jobs(kube)) == ("mira", ["train"])


def test_a_person_who_made_the_job_again_is_not_undone(kube: KubernetesHarness) -> None:
    first = failed(kube)
    kube.cluster.api.store.delete("jobs", NAMESPACE, "train")
    kube.apply(job("train", Program(run_s=600.0)))
    kube.until(lambda seen: [a for a in seen.attempts if a.id.incarnation > first.id.incarnation])
    assert kube.backend.perform(Requeue(first.id)).status is OutcomeStatus.SUPERSEDED
    assert jobs(kube) == ["train"]


def test_hold_and_release_leave_a_persons_suspension_to_them(kube: KubernetesHarness) -> None:
    nobody = AttemptId("kube", kube.apply(job("train", Program(node_count=9))), 0)
    assert kube.backend.perform(Hold(nobody)).status is OutcomeStatus.DONE
    assert kube.backend.perform(Hold(nobody)).status is OutcomeStatus.DONE
    assert kube.job(nobody.job_id).state is JobState.HELD
    assert kube.backend.perform(Release(nobody)).status is OutcomeStatus.DONE
    assert kube.job(nobody.job_id).state is JobState.PENDING


def test_a_job_whose_change_was_cut_short_is_resumed_as_it_is(
    kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended for other nodes, and then the service died, and nobody asked again."""
    monkeypatch.setattr(actor, "RESHAPE_S", 0.5)
    job_id = kube.apply(job("train", Program(node_count=9, run_s=600.0)))
    kube.until(lambda seen: [j for j in seen.jobs if j.state.is_waiting])
    kube.backend.perform(Drain("node4", "holds the lease", "1"))
    assert killed_at(kube, monkeypatch, 1, Exclude(AttemptId("kube", job_id, 0), ("node1",)))
    assert kube.cluster.api.store.get("jobs", NAMESPACE, "train")["spec"]["suspend"]
    kube.until(lambda _: not kube.cluster.api.store.get("jobs", NAMESPACE, "train")["spec"]["suspend"])


def test_only_perdures_own_taint_comes_off(kube: KubernetesHarness) -> None:
    with kube.cluster.api.store.lock:
        node = kube.cluster.api.store.get("nodes", "", "node1")
        node["spec"] = {"unschedulable": True, "taints": [{"key": "site.org/repair", "effect": "NoSchedule"}]}
        kube.cluster.api.store.update("nodes", node)
    kube.backend.perform(Drain("node1", "why", "1"))
    kube.backend.perform(Undrain("node1", "1"))
    node = kube.cluster.api.store.get("nodes", "", "node1")
    assert node["spec"] == {"unschedulable": True, "taints": [{"key": "site.org/repair", "effect": "NoSchedule"}]}


def test_one_service_acts_until_its_lease_lapses(kube: KubernetesHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    kube.backend.perform(Drain("node1", "why", "1"))
    monkeypatch.setattr(lease, "DURATION_S", 1)
    other = KubernetesHarness(kube.cluster, holder="other:1").backend
    with closing(other), pytest.raises(ClusterBusy, match="test:1 acts on this cluster"):
        other.perform(Drain("node2", "why", "1"))
    with kube.cluster.api.store.lock:
        document = kube.cluster.api.store.get("leases", "perdure", "perdure")
        document["spec"]["leaseDurationSeconds"] = 1
        kube.cluster.api.store.update("leases", document)
    other = KubernetesHarness(kube.cluster, holder="other:1").backend
    with closing(other):
        kube.until(lambda _: performs(other, Drain("node2", "why", "1")))
        document = kube.cluster.api.store.get("leases", "perdure", "perdure")
        assert document["spec"]["holderIdentity"] == "other:1"
        assert document["spec"]["leaseTransitions"] == 1


def test_a_lease_lapses_so_long_after_its_last_renewal_was_seen_here(
    open_stand_in: Callable[..., StandInCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, clock_s = open_stand_in(), [1000.0]
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    with closing(ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig()))) as api:
        holder, other = (lease.SoleActor(api, "perdure", name) for name in ("test:1", "other:1"))
        for _ in range(4):
            holder.hold(clock_s[0])
            with pytest.raises(ClusterBusy):
                other.hold(0.0)  # whatever the time of day is there
            clock_s[0] += lease.DURATION_S / 2
        clock_s[0] += lease.DURATION_S / 2 - 1.0
        with pytest.raises(ClusterBusy):
            other.hold(0.0)
        clock_s[0] += 2.0
        other.hold(0.0)
        holder.release()
        assert cluster.api.store.get("leases", "perdure", "perdure")["spec"]["holderIdentity"] == "other:1"


def test_a_renewal_counts_from_when_it_was_begun(
    open_stand_in: Callable[..., StandInCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, clock_s = open_stand_in(), iter((1000.0, 1000.0 + lease.RENEW_S, 1000.0 + lease.RENEW_S))
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    with closing(ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig()))) as api:
        holder = lease.SoleActor(api, "perdure", "test:1")
        told = []
        for now in (1_000_000.0, 1_000_050.0):
            holder.hold(now)
            told.append(cluster.api.store.get("leases", "perdure", "perdure")["spec"]["renewTime"])
    assert told[0] != told[1]


def performs(backend: Any, action: Action) -> bool:
    try:
        return backend.perform(action).status is OutcomeStatus.DONE
    except ClusterBusy:
        return False


def test_a_service_that_ends_lets_go_of_the_lease(open_stand_in: Callable[..., StandInCluster]) -> None:
    cluster = open_stand_in()
    with closing(KubernetesHarness(cluster).backend) as backend:
        backend.perform(Drain("node1", "why", "1"))
    with closing(KubernetesHarness(cluster, holder="other:1").backend) as other:
        assert other.perform(Drain("node2", "why", "1")).status is OutcomeStatus.DONE


@pytest.mark.parametrize(
    "terms",
    [[["node1"]], [["node1", "node2"]], [["node1", "node2"], ["node2"]], [["node1"], ["node2"]], [["node1"], []]],
    ids=str,
)
def test_a_job_is_off_the_nodes_that_all_its_alternatives_leave_out(
    kube: KubernetesHarness, terms: list[list[str]]
) -> None:
    document = job("train", Program(), suspend=True)
    pods = document["spec"]["template"]["spec"]
    alternatives = [
        {
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["old"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names],
        }
        for names in terms
    ]
    pods["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": alternatives}}
    }
    job_id = kube.apply(document)
    kube.until(lambda seen: [each for each in seen.jobs if each.job_id == job_id])
    closed = [node for node in kube.cluster.api.store.all_of("nodes") if not may_run(pods, node)]
    assert kube.job(job_id).excluded == tuple(sorted(node["metadata"]["name"] for node in closed))
