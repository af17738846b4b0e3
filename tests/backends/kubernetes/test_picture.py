"""What one look makes of jobs, pods and nodes: without a cluster, from objects as their owners and Kubernetes write."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.backends.kubernetes.attempts import MOST_PAST, from_history, to_history
from perdure.backends.kubernetes.ends import RememberedEnds
from perdure.backends.kubernetes.held import HeldObject, MirrorView
from perdure.backends.kubernetes.picture import (
    DELETED_S,
    SETTLE_S,
    QuietJob,
    ReadingRules,
    Sighted,
    SightedJob,
    jobs_in,
    nodes_in,
)
from perdure.backends.kubernetes.plans import node_patch, placement_patch, replacement, terms_without
from perdure.backends.kubernetes.runs import gpus_of, slot_of
from perdure.backends.kubernetes.workloads import JOB, JOB_SET, PYTORCH_JOB, WorkloadForm
from perdure.model.actions import Down, Drain, Requeue, Undrain
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import NodeState

NOW = 1_800_000_000.0
RULES = ReadingRules("kube")
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
QUEUE = "kueue.x-k8s.io/queue-name"


def at(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_container(gpus: int, name: str = "main") -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def a_job(pods: int = 1, name: str = "train", **more: Any) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [a_container(4)]}}}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": at(900)}
    return {
        "metadata": {**metadata, **more.get("metadata", {})},
        "spec": {**spec, **more.get("spec", {})},
        "status": more.get("status", {}),
    }


def over(kind: str, reason: str = "", ago_s: float = 100.0) -> dict[str, Any]:
    told = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at(ago_s)}
    return {"conditions": [told]}


def a_pod(
    slot: int, node: str = "n1", born: float = 800.0, began: float | None = None, code: int | None = None,
    ended: float = 200.0, owner: str = "uid-train", **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A pod of a job; times are seconds ago. Without a code it runs."""
    began = born - 10.0 if began is None else began
    state: dict[str, Any] = {"running": {"startedAt": at(began)}}
    if code is not None:
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": at(began),
                                "finishedAt": at(ended)}}  # fmt: skip
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    refs = [{"kind": "Job", "uid": owner, "controller": True}]
    return {
        "metadata": {
            "name": f"p{slot}-{born}", "namespace": "team", "uid": f"pod-{slot}-{born}", "creationTimestamp": at(born),
            "labels": {"batch.kubernetes.io/job-completion-index": str(slot), **more.get("labels", {})},
            "ownerReferences": more.get("owners", refs), **more.get("metadata", {}),
        },
        "spec": {"nodeName": node, "containers": [a_container(4)]},
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}], **more.get("status", {})},
    }  # fmt: skip


def a_node(name: str, ready: str = "True", *taints: str, **more: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "reason": "Kubelet", "lastTransitionTime": at(50)}]
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": more.get("annotations", {})},
        "spec": {"taints": [{"key": key} for key in taints], "unschedulable": more.get("is_closed", False)},
        "status": {"conditions": conditions, "capacity": {"nvidia.com/gpu": "8"},
                   "allocatable": {"nvidia.com/gpu": "5", "amd.com/gpu": 1, "cpu": "64"}},
    }  # fmt: skip


def view(documents: Any) -> MirrorView:
    return MirrorView(tuple(each if isinstance(each, HeldObject) else HeldObject(each) for each in documents))


def seen(jobs: Any, pods: Any = (), nodes: Any = (), queued: Any = (), form: WorkloadForm = JOB) -> Sighted:
    return Sighted({form: view(jobs)}, view(pods), view(nodes), view(queued))


def look(job: Any, *pods: Any, form: WorkloadForm = JOB, rules: ReadingRules = RULES, **more: Any) -> SightedJob:
    return jobs_in(seen([job], pods, form=form, **more), rules, NOW)[-1]


def job_of(document: dict[str, Any], form: WorkloadForm = JOB, **more: Any) -> Job:
    return look(document, form=form, **more).job


def told(sighted: SightedJob) -> list[tuple[AttemptState, tuple[str, ...]]]:
    return [(attempt.state, attempt.nodes) for attempt in sighted.attempts]


# -- attempts


def test_a_gang_begins_once_all_of_it_has_nodes_and_at_its_first_container() -> None:
    pods = [a_pod(slot, f"n{slot}", born=800, began=700 - slot) for slot in range(3)]
    assert look(a_job(3), *pods[:2]).attempts == ()
    (attempt,) = look(a_job(3), *pods).attempts
    assert (attempt.nodes, attempt.start_s, attempt.gpus) == (("n0", "n1", "n2"), NOW - 700, 12)
    assert attempt.stdout == "/pods/team/p0-800/main"


def test_pods_that_share_a_queue_of_work_need_not_run_together() -> None:
    queue = a_job(3, spec={"completions": None})
    assert told(look(queue, a_pod(0, owners=[{"kind": "Job", "uid": "uid-train", "controller": True}]))) == [
        (AttemptState.RUNNING, ("n1",))
    ]
    for completions, is_queue in ((4, True), (3, False), (2, False)):
        document = a_job(3, spec={"completions": completions})
        assert bool(look(document, a_pod(0)).attempts) is is_queue


def test_of_many_pods_the_log_is_that_of_the_lowest_index() -> None:
    pods = [a_pod(slot, f"n{slot}") for slot in (10, 9, 11)]
    (attempt,) = look(a_job(3), *pods).attempts
    assert attempt.stdout == "/pods/team/p9-800.0/main"


def test_the_log_of_a_failed_gang_is_that_of_the_pod_that_failed_first() -> None:
    pods = [a_pod(0, "n0", code=1, ended=190), a_pod(1, "n1", code=7, ended=200), a_pod(2, "n2", code=9, ended=150)]
    (attempt,) = look(a_job(3, status=over("Failed")), *pods).attempts
    assert (attempt.exit_code, attempt.end_s) == (7, NOW - 200)
    assert attempt.stdout == "/pods/team/p1-800.0/main"


@pytest.mark.parametrize(("reason", "state", "code"), [
    ("BackoffLimitExceeded", AttemptState.FAILED, 3), ("DeadlineExceeded", AttemptState.TIMEOUT, 0),
])  # fmt: skip
def test_a_job_past_its_deadline_timed_out_whatever_its_pods_say(reason: str, state: AttemptState, code: int) -> None:
    (attempt,) = look(a_job(status=over("Failed", reason)), a_pod(0, code=3)).attempts
    assert (attempt.state, attempt.exit_code) == (state, code)


def test_how_a_job_is_over_says_nothing_of_attempts_before_its_last() -> None:
    pods = [a_pod(0, "n1", 800, code=3, ended=700), a_pod(0, "n2", 600, code=0, ended=100)]
    sighted = look(a_job(status=over("Complete")), *pods)
    assert told(sighted) == [(AttemptState.FAILED, ("n1",)), (AttemptState.COMPLETED, ("n2",))]
    timed_out = look(a_job(status=over("Failed", "DeadlineExceeded")), *pods)
    assert [attempt.state for attempt in timed_out.attempts] == [AttemptState.FAILED, AttemptState.TIMEOUT]
    assert sighted.job.restarts == 1


def test_of_a_gang_that_fails_only_the_nodes_that_are_down_have_failed() -> None:
    lost: dict[str, Any] = {"status": {"reason": "NodeLost"}}
    pods = [a_pod(0, "n0", code=1, ended=200, **lost), a_pod(1, "n1", code=1, ended=150)]
    (attempt,) = look(a_job(2, status=over("Failed")), *pods).attempts
    assert (attempt.state, attempt.nodes, attempt.failed_nodes) == (AttemptState.NODE_FAIL, ("n0", "n1"), ("n0",))


def test_a_pod_that_went_before_it_had_a_node_never_ran() -> None:
    gone = HeldObject(a_pod(0, "", 800) | {"status": {"phase": "Pending"}}, NOW - 700)
    assert told(look(a_job(), gone, a_pod(0, "n2", 600))) == [(AttemptState.RUNNING, ("n2",))]


def test_an_end_is_not_before_its_start() -> None:
    """Clocks of nodes and of the API server differ."""
    (attempt,) = look(a_job(status=over("Failed", "DeadlineExceeded", ago_s=800)), a_pod(0, began=790)).attempts
    assert (attempt.start_s, attempt.end_s) == (NOW - 790, NOW - 790)


def test_a_job_that_says_it_failed_waits_for_the_pod_that_did() -> None:
    for ago_s, is_over in ((DELETED_S - 2, False), (DELETED_S + 2, True)):
        (attempt,) = look(a_job(status=over("Failed", ago_s=ago_s)), a_pod(0)).attempts
        assert attempt.state.is_over is is_over


@pytest.mark.parametrize(("limit", "counted", "is_final"), [
    (None, 6, True), (None, 5, False), (0, 0, True), (3, 2, False), (3, 3, True),
])  # fmt: skip
def test_the_last_failure_of_a_job_is_told_once_the_job_can_have_said_so(
    limit: int | None, counted: int, is_final: bool
) -> None:
    tracked: dict[str, Any] = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    for ago_s in (SETTLE_S - 5, SETTLE_S + 5):
        document = a_job(spec={"backoffLimit": limit}, status={"failed": counted})
        (attempt,) = look(document, a_pod(0, code=3, ended=ago_s, **tracked)).attempts
        assert attempt.state.is_over is (not is_final or ago_s > SETTLE_S)


def test_a_failed_pod_that_is_gone_has_been_counted() -> None:
    tracked = {"finalizers": ["batch.kubernetes.io/job-tracking"]}
    gone = HeldObject(a_pod(0, code=3, ended=10, metadata=tracked), NOW - 9)
    (attempt,) = look(a_job(spec={"backoffLimit": 1}, status={"failed": 1}), gone).attempts
    assert attempt.state is AttemptState.FAILED


def test_a_failure_in_place_is_told_at_once() -> None:
    before = {"exitCode": 1, "reason": "Error", "startedAt": at(60), "finishedAt": at(20)}
    status = {"containerStatuses": [{"name": "main", "restartCount": 1, "lastState": {"terminated": before},
                                     "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}  # fmt: skip
    document = a_job(spec={"backoffLimit": 0}, status={"failed": 1})
    assert [attempt.state for attempt in look(document, a_pod(0, status=status)).attempts] == [AttemptState.FAILED]


def test_pods_of_a_job_that_is_suspended_are_told_at_once_and_those_of_others_a_little_later() -> None:
    gone = HeldObject(a_pod(0), NOW - 2.0)
    (waits,) = look(a_job(), gone).attempts
    assert waits.state is AttemptState.RUNNING
    (suspended,) = look(a_job(spec={"suspend": True}), gone).attempts
    assert (suspended.state, suspended.reason) == (AttemptState.REQUEUED, "the job was suspended")


@pytest.mark.parametrize(("most", "restarts", "is_final"), [(2, 1, False), (2, 2, True), (None, 0, True)])
def test_a_jobset_that_has_restarts_left_tells_of_a_failure_at_once(
    most: int | None, restarts: int, is_final: bool
) -> None:
    template = {"spec": {"template": {"spec": {"containers": [a_container(4)]}}}}
    spec = {"replicatedJobs": [{"replicas": 1, "template": template}], "failurePolicy": {"maxRestarts": most}}
    document = a_job(spec=spec, status={"restarts": restarts})
    pod = a_pod(0, code=1, ended=10, labels={"jobset.sigs.k8s.io/jobset-name": "train"})
    (attempt,) = look(document, pod, form=JOB_SET).attempts
    assert attempt.state.is_over is not is_final


def test_a_gang_of_which_a_pod_failed_before_the_others_had_nodes_has_run() -> None:
    waits = [a_pod(slot, "") | {"status": {"phase": "Pending"}} for slot in (1, 2)]
    assert told(look(a_job(3), a_pod(0, code=3), *waits)) == [(AttemptState.FAILED, ("n1",))]


def test_a_pod_of_a_jobset_is_not_of_the_start_after_its_own() -> None:
    template = {"spec": {"template": {"spec": {"containers": [a_container(4)]}}}}
    document = a_job(spec={"replicatedJobs": [{"replicas": 1, "template": template}]})
    pods = [
        a_pod(0, f"n{turn}", 800 - turn, labels={
            "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/restart-attempt": str(turn)
        })
        for turn in (0, 1)
    ]  # fmt: skip
    assert [attempt.nodes for attempt in look(document, *pods, form=JOB_SET).attempts] == [("n0",), ("n1",)]


def a_jobset(**more: Any) -> dict[str, Any]:
    """Of one Job of three pods, and two of twelve."""
    template = {"spec": {"containers": [a_container(4)]}}
    parts = (("prepare", 1, 3), ("train", 2, 12))
    replicated = [
        {"name": name, "replicas": replicas,
         "template": {"spec": {"parallelism": pods, "completions": pods, "template": template}}}
        for name, replicas, pods in parts
    ]  # fmt: skip
    return a_job(spec={"replicatedJobs": replicated}, **more)


PLACES = [(job, index) for job, pods in ((0, 3), (1, 12), (2, 12)) for index in range(pods)]
"""Of the pods of `a_jobset`: the number of the Job among all of them, and the pod's index in that."""


def a_pod_of_a_jobset(job: int, index: int, *where: Any, **more: Any) -> dict[str, Any]:
    part, number = ("prepare", 0) if job == 0 else ("train", job - 1)
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": part,
        "jobset.sigs.k8s.io/job-index": str(number), "jobset.sigs.k8s.io/job-global-index": str(job),
        "jobset.sigs.k8s.io/restart-attempt": "0", "job-name": f"train-{part}-{number}",
    }  # fmt: skip
    named = {"name": f"train-{part}-{number}-{index}", "uid": f"pod-{job}-{index}-{where[1:2]}"}
    pod = a_pod(index, *where, labels=labels, **more)
    return {**pod, "metadata": {**pod["metadata"], **named}}


def test_the_pods_of_all_jobs_of_a_jobset_are_one_attempt() -> None:
    """Some have ended well by the time that one fails: none of them takes the place of another."""
    for completed in ((), ((2, 0), (1, 3), (2, 5))):
        codes = dict.fromkeys(completed, 0) | {(2, 4): 7}
        pods = [
            a_pod_of_a_jobset(job, index, f"n{job}-{index}", 800 - job, code=codes.get((job, index)))
            for job, index in PLACES
        ]
        sighted = look(a_jobset(status=over("Failed")), *pods, form=JOB_SET)
        (attempt,) = sighted.attempts
        assert (attempt.state, attempt.exit_code, sighted.job.restarts) == (AttemptState.FAILED, 7, 0)
        assert attempt.nodes == tuple(sorted(f"n{job}-{index}" for job, index in PLACES))
        assert attempt.stdout == "/pods/team/train-train-1-4/main"


def test_a_pod_of_a_jobset_that_is_replaced_in_its_job_begins_an_attempt() -> None:
    pods = [a_pod_of_a_jobset(job, index, f"n{job}-{index}", 800) for job, index in PLACES if (job, index) != (1, 2)]
    failed, again = a_pod_of_a_jobset(1, 2, "bad", 800, code=1), a_pod_of_a_jobset(1, 2, "good", 100, 90)
    first, second = look(a_jobset(), *pods, failed, again, form=JOB_SET).attempts
    assert set(first.nodes) ^ set(second.nodes) == {"bad", "good"}
    assert (first.state, second.state) == (AttemptState.FAILED, AttemptState.RUNNING)


def test_the_log_of_a_jobset_is_that_of_its_first_pod() -> None:
    """Number by number: the tenth pod of a Job comes before those of the next."""
    pods = [a_pod_of_a_jobset(job, index, f"n{job}-{index}") for job, index in reversed(PLACES)]
    pods = [pod if pod["metadata"]["name"] in ("train-train-0-10", "train-train-1-2") else pod | {"spec": {}}
            for pod in pods]  # fmt: skip
    (attempt,) = look(a_jobset(status=over("Completed")), *pods, form=JOB_SET).attempts
    assert attempt.stdout == "/pods/team/train-train-0-10/main"


def test_old_jobsets_do_not_number_their_jobs() -> None:
    pods = [a_pod_of_a_jobset(job, index, f"n{job}-{index}", code=0) for job, index in PLACES]
    for pod in pods:
        del pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-global-index"]
    (attempt,) = look(a_jobset(status=over("Completed")), *pods, form=JOB_SET).attempts
    assert len(attempt.nodes) == len(PLACES)
    assert {JOB_SET.rank(a_jobset(), slot_of(pod)) for pod in pods} == {None}


def test_a_rank_counts_the_pods_of_all_jobs_of_a_jobset_in_their_order() -> None:
    slots = [slot_of(a_pod_of_a_jobset(job, index)) for job, index in PLACES]
    assert [JOB_SET.rank(a_jobset(), slot) for slot in slots] == list(range(27))
    assert [JOB_SET.rank(a_jobset(), slot) for slot in ("3-0", "0", "uid", "4f-2e-11", "train-0-1")] == [None] * 5


@pytest.mark.parametrize(("kinds", "slot", "rank"), [
    ("Master Worker", "master-0", 0), ("Master Worker", "worker-0", 1), ("Worker Master", "worker-2", 3),
    ("Worker", "worker-0", 0), ("Worker", "-1", None), ("Worker", "4f-2e-11", None),
])  # fmt: skip
def test_the_rank_of_a_replica_of_kubeflow_is_that_which_its_operator_gives_it(
    kinds: str, slot: str, rank: int | None
) -> None:
    replicas = {"Master": {}, "Worker": {"replicas": 3}}
    document = {"spec": {"pytorchReplicaSpecs": {kind: replicas[kind] for kind in kinds.split()}}}
    assert PYTORCH_JOB.rank(document, slot) == rank


def test_a_rank_of_a_job_is_its_pods_index() -> None:
    assert [JOB.rank(a_job(3), slot_of(a_pod(slot))) for slot in (0, 2)] == [0, 2]
    assert [JOB.rank(a_job(3), slot) for slot in ("uid", "4f-2e-11")] == [None, None]


def test_ranks_leave_room_for_all_indexes_of_a_job_though_some_run_later() -> None:
    job_set = a_jobset()
    job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 1
    assert JOB_SET.rank(job_set, "1-0") == 3
    del job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"]
    assert JOB_SET.rank(job_set, "1-0") == 1


# -- objects of one name, one after another


def test_incarnations_go_on_from_the_object_that_had_the_name_before() -> None:
    """Two of one second are told apart."""
    old = HeldObject(a_job(metadata={"uid": "old"}), NOW - 700)
    pods = [a_pod(0, "n1", 600, code=1, ended=500, owner="old"), a_pod(0, "n2", 600)]
    first, second = jobs_in(seen([a_job(), old], pods), RULES, NOW)
    assert (first.job.state, second.job.state) == (JobState.CANCELLED, JobState.RUNNING)
    assert [a.id.incarnation for a in (*first.attempts, *second.attempts)] == [int(NOW) - 600, int(NOW) - 599]


def test_attempts_that_an_annotation_holds_come_first_and_are_counted_as_restarts() -> None:
    late = int(NOW) - 500
    past = [Attempt(AttemptId("kube", "team.train", late + n), AttemptState.FAILED, ("n9",), 1.0, 2.0) for n in (0, 1)]
    document = a_job(metadata={"annotations": {"perdure.dev/history": to_history(past)}})
    sighted = look(document, a_pod(0, born=800))
    assert [attempt.id.incarnation for attempt in sighted.attempts] == [late, late + 1, late + 2]
    assert sighted.job.restarts == 2


def test_of_many_past_attempts_the_latest_are_kept() -> None:
    many = [Attempt(AttemptId("c", "j", n), AttemptState.FAILED, (), 1.0, 2.0) for n in range(MOST_PAST + 5)]
    running = Attempt(AttemptId("c", "j", 99), AttemptState.RUNNING, (), 1.0)
    assert from_history(to_history([*many, running]), "j", "c", "") == many[5:]


def test_pods_of_a_jobset_before_of_the_same_name_are_not_its_own() -> None:
    spec = {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"containers": [a_container(4)]}}}}}]}
    old = HeldObject(a_job(metadata={"uid": "old", "creationTimestamp": at(900)}, spec=spec), NOW - 500)
    new = a_job(metadata={"uid": "new", "creationTimestamp": at(400)}, spec=spec)
    name = {"jobset.sigs.k8s.io/jobset-name": "train"}
    pods = [a_pod(0, "n1", 800, code=0, ended=600, labels=name), a_pod(0, "n2", 300, labels=name)]
    first, second = jobs_in(seen([old, new], pods, form=JOB_SET), RULES, NOW)
    assert [attempt.nodes for attempt in first.attempts] == [("n1",)]
    assert [attempt.nodes for attempt in second.attempts] == [("n2",)]


# -- what an owner may write


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("of_job", "of_pod", "gpus"),
    [
        ({}, {"jobset.sigs.k8s.io/restart-attempt": NINES}, "4"),
        ({"perdure.dev/resume-at": "nan"}, {}, "4"),
        ({"perdure.dev/resume-at": "inf"}, {}, "4"),
        ({"perdure.dev/resume-at": NINES}, {}, "4"),
        ({}, {}, NINES),
        *(
            ({"perdure.dev/history": f'[{{"i":1,"s":"failed","b":1,"e":2,{said}}}]'}, {}, "4")
            for said in (f'"i":{2**63}', f'"gpus":{10**30}', f'"c":{10**30}', '"e":1e300', '"e":1e999')
        ),
    ],
)
def test_numbers_that_an_owner_writes_are_taken_as_such_or_not_at_all(
    of_job: dict[str, str], of_pod: dict[str, str], gpus: str
) -> None:
    """One of five thousand digits ended the look at all jobs; the journal keeps numbers of 64 bits."""
    asks = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]}
    for is_suspended in (False, True):
        pod = {**a_pod(0, metadata={"annotations": of_pod}), "spec": {"nodeName": "n1", **asks}}
        spec = {"suspend": is_suspended, "template": {"spec": asks}}
        found = look(a_job(metadata={"annotations": of_job}, spec=spec), pod)
        told = [found.job.eligible_s, found.job.gpus, *(n for a in found.attempts for n in (a.id.incarnation, a.gpus))]
        assert all(each is None or 0 <= each < 2**40 for each in told)
        assert found.job.eligible_s is None
        assert nodes_in(seen([], [pod], [a_node("n1")]))[0].gpus_used < 2**40


def test_what_an_owner_writes_of_earlier_attempts_blames_no_node() -> None:
    told = '[{"i":5,"s":"node_fail","b":1.0,"e":2.0,"n":["n7"],"f":["n7"]}]'
    found = look(a_job(metadata={"annotations": {"perdure.dev/history": told}}), a_pod(0))
    assert [(each.id.incarnation, each.nodes, each.failed_nodes) for each in found.attempts[:1]] == [(5, (), ())]


# -- the job


def test_whose_a_job_is() -> None:
    document = a_job(metadata={"labels": {"who": "mira"}})
    assert (job_of(document).user, job_of(document).account) == ("team", "team")
    assert job_of(document, rules=ReadingRules("kube", "who")).user == "mira"
    assert job_of(a_job(), rules=ReadingRules("kube", "who")).user == "team"


@pytest.mark.parametrize(("words", "found"), [
    ("2-8", (2, 8)), ("3-3", (3, 3)), ("0-4", None), ("8-2", None), ("4", None), ("", None),
])  # fmt: skip
def test_the_sizes_that_an_owner_allows(words: str, found: tuple[int, int] | None) -> None:
    document = a_job(metadata={"annotations": {"perdure.dev/nodes": words}})
    assert job_of(document).restart_nodes == found
    assert job_of(document, PYTORCH_JOB).restart_nodes is None


def test_a_time_to_resume_counts_while_a_job_waits() -> None:
    document = a_job(metadata={"annotations": {"perdure.dev/resume-at": str(NOW + 60)}}, spec={"suspend": True})
    assert (job_of(document).eligible_s, job_of(document).state) == (NOW + 60, JobState.PENDING)
    runs = a_job(metadata={"annotations": {"perdure.dev/resume-at": str(NOW - 60)}})
    assert look(runs, a_pod(0)).job.eligible_s is None


def test_limits_and_sizes_of_each_kind_stand_where_that_kind_has_them() -> None:
    plain = a_job(4, spec={"completions": 2, "activeDeadlineSeconds": 60, "runPolicy": {"activeDeadlineSeconds": 70}})
    assert (job_of(plain).walltime_s, job_of(plain).gpus, job_of(plain).node_count) == (60.0, 8, 2)
    template = {"spec": {"containers": [a_container(2)]}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": 3, "template": template}}
    pytorch = a_job(spec={**plain["spec"], "pytorchReplicaSpecs": replicas})
    found = job_of(pytorch, PYTORCH_JOB)
    assert (found.walltime_s, found.gpus, found.node_count) == (70.0, 8, 4)
    inner = {"spec": {"parallelism": 3, "template": template}}
    job_set = a_job(spec={"replicatedJobs": [{"replicas": 2, "template": inner}, {"template": inner}]})
    assert (job_of(job_set, JOB_SET).gpus, job_of(job_set, JOB_SET).node_count) == (18, 9)


def test_only_what_a_cronjob_starts_is_started_again_at_its_time() -> None:
    for kind, is_cron in (("CronJob", True), ("JobSet", False)):
        owners = [{"kind": kind, "name": "boss", "controller": True}]
        found = job_of(a_job(metadata={"ownerReferences": owners, "labels": {"perdure.dev/managed": "true"}}))
        assert (found.is_cron, found.may_requeue) == (is_cron, False)
    owners = [{"kind": "CronJob", "name": "boss"}]  # it owns the job and does not control it
    found = job_of(a_job(metadata={"ownerReferences": owners, "labels": {"perdure.dev/managed": "true"}}))
    assert (found.is_cron, found.may_requeue) == (False, True)


def terms(*names: tuple[str, ...]) -> dict[str, Any]:
    rules = [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": list(each)}]} for each in names]
    return {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": rules}}}


def test_a_node_is_excluded_where_no_pod_may_be_on_it() -> None:
    """Terms are alternatives, and each replica has its own."""
    spec = {"containers": [a_container(1)], "affinity": terms(("a", "b"), ("b", "c"))}
    assert job_of(a_job(spec={"template": {"spec": spec}})).excluded == ("b",)
    replicas = {
        "Master": {"template": {"spec": {**spec, "affinity": terms(("b", "d"))}}},
        "Worker": {"template": {"spec": {**spec, "affinity": terms(("d", "e"))}}},
    }
    assert job_of(a_job(spec={"pytorchReplicaSpecs": replicas}), PYTORCH_JOB).excluded == ("d",)


def test_a_workload_of_kueue_counts_while_it_is_there() -> None:
    document = a_job(metadata={"labels": {QUEUE: "gpus"}}, spec={"suspend": True})
    workload = {"metadata": {"uid": "w", "ownerReferences": [{"uid": "uid-train"}]}, "spec": {"active": False}}
    assert job_of(document, queued=[workload]).state is JobState.HELD
    assert job_of(document, queued=[HeldObject(workload, NOW - 5)]).state is JobState.PENDING


def test_pods_that_kueue_evicts_were_preempted() -> None:
    document = a_job(metadata={"labels": {QUEUE: "gpus"}}, spec={"suspend": True})
    workload = {"metadata": {"uid": "w", "ownerReferences": [{"uid": "uid-train"}]}, "status": over("Evicted", "Why")}
    (attempt,) = look(document, HeldObject(a_pod(0), NOW - 60), queued=[workload]).attempts
    assert (attempt.state, attempt.reason) == (AttemptState.PREEMPTED, "evicted by Kueue: Why")


# -- pods


def test_a_pod_takes_what_its_containers_ask_for_or_the_largest_of_those_before_them() -> None:
    spec = {"containers": [a_container(2), a_container(1, "b")], "initContainers": [a_container(2), a_container(2)]}
    assert gpus_of({"spec": spec}) == 3
    assert gpus_of({"spec": {**spec, "initContainers": [a_container(4), a_container(1)]}}) == 4


def test_a_container_that_was_named_as_the_main_one_is_it_only_where_there_is_such_a_one() -> None:
    for named, main in (("main", "main"), ("nobody", "side")):
        pod = a_pod(0, metadata={"annotations": {"kubectl.kubernetes.io/default-container": named}})
        pod["spec"]["containers"] = [a_container(0, "side"), a_container(4)]
        (attempt,) = look(a_job(), pod).attempts
        assert attempt.stdout.endswith(f"/{main}")


def test_the_container_that_failed_first_ended_a_pod_and_an_init_container_before_all() -> None:
    def ended(name: str, code: int, ago_s: float) -> dict[str, Any]:
        end = {"exitCode": code, "reason": "Error", "startedAt": at(500), "finishedAt": at(ago_s)}
        return {"name": name, "state": {"terminated": end}}

    both = [ended("main", 3, 200), ended("side", 4, 300), ended("late", 0, 100)]
    (attempt,) = look(a_job(status=over("Failed")), a_pod(0, code=3, status={"containerStatuses": both})).attempts
    assert (attempt.exit_code, attempt.end_s) == (4, NOW - 100)
    first = {"containerStatuses": both, "initContainerStatuses": [ended("init", 5, 100)]}
    (attempt,) = look(a_job(status=over("Failed")), a_pod(0, code=3, status=first)).attempts
    assert attempt.exit_code == 5


def test_an_image_that_does_not_come_fails_the_launch_after_the_patience_of_the_site() -> None:
    for ago_s, is_over in ((299, False), (301, True)):
        status = {"phase": "Pending", "startTime": at(ago_s), "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}
        ]}  # fmt: skip
        (attempt,) = look(a_job(), a_pod(0, status=status)).attempts
        assert attempt.state is (AttemptState.LAUNCH_FAILED if is_over else AttemptState.RUNNING)


@pytest.mark.parametrize(
    "nodes", [[a_node("n2")], [a_node("n1", "False")], [a_node("n1", "True", "perdure.dev/given-up")]]
)
def test_a_pod_on_its_way_out_has_failed_with_a_node_that_is_gone_down_or_given_up(nodes: list[dict[str, Any]]) -> None:
    going = a_pod(0, metadata={"deletionTimestamp": at(-30), "deletionGracePeriodSeconds": 30})
    (attempt,) = look(a_job(), going, nodes=nodes).attempts
    assert (attempt.state, attempt.failed_nodes) == (AttemptState.NODE_FAIL, ("n1",))
    (attempt,) = look(a_job(), going, nodes=[a_node("n1")]).attempts
    assert attempt.state is AttemptState.RUNNING


# -- what is remembered


def test_what_is_remembered_of_a_look_changes_nothing_of_the_next() -> None:
    """Jobs, pods and nodes come, change and go at random."""
    for seed in range(40):
        rng = random.Random(seed)
        memory: dict[str, QuietJob] = {}
        jobs = [HeldObject(a_job(rng.choice((1, 2)), name)) for name in ("a", "b", "c")]
        pods: list[HeldObject] = []
        nodes = [a_node("n1"), a_node("n2")]
        for step in range(8):
            match rng.randrange(5):
                case 0:
                    at_job = rng.randrange(len(jobs))
                    ago_s = rng.choice((100.0, 1.0 - 3 * step))
                    status = rng.choice((over("Complete", "", ago_s), over("Failed", "", ago_s), {}))
                    jobs[at_job] = HeldObject({**jobs[at_job].document, "status": status})
                case 1:
                    nodes = [a_node("n1", rng.choice(("True", "False"))), a_node("n2")]
                case 2 if pods:
                    pods[rng.randrange(len(pods))] = HeldObject(rng.choice(pods).document, NOW + step - 1)
                case 3:
                    name = rng.choice("abc")
                    place = rng.randrange(3)
                    jobs[place] = HeldObject(jobs[place].document, jobs[place].gone_s or NOW + step)
                    jobs.append(HeldObject(a_job(1, name, metadata={"uid": f"uid-{step}"}), NOW + step))
                    pods.append(HeldObject(a_pod(0, "n2", rng.choice((100, 900)), code=0, owner=f"uid-{step}")))
                case _:
                    code = rng.choice((None, 0, 3))
                    owner = f"uid-{rng.choice('abc')}"
                    node = rng.choice(("n1", "n2", ""))
                    pods.append(HeldObject(a_pod(rng.randrange(2), node, 700 - step, code=code, owner=owner)))
            there = seen(jobs, pods, nodes)
            now = NOW + 3.0 * step
            assert jobs_in(there, RULES, now, memory) == jobs_in(there, RULES, now)


def test_an_end_stays_as_it_was_first_told() -> None:
    ends = RememberedEnds()
    failed = look(a_job(status=over("Failed")), a_pod(0, code=3))
    ends.remember(failed)
    again = look(a_job(), a_pod(0))
    assert ends.apply(again).attempts == failed.attempts
    other = look(a_job(status=over("Failed")), a_pod(0, code=9))
    ends.remember(other)
    assert ends.apply(other).attempts == failed.attempts


def test_a_launch_that_failed_and_starts_after_all_is_two_attempts() -> None:
    stuck = {"phase": "Pending", "startTime": at(700), "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}
    ]}  # fmt: skip
    ends = RememberedEnds()
    ends.remember(look(a_job(), a_pod(0, born=800, status=stuck)))
    first, late = ends.apply(look(a_job(), a_pod(0, born=800, began=300))).attempts
    assert (first.state, first.id.incarnation) == (AttemptState.LAUNCH_FAILED, int(NOW) - 800)
    assert (late.state, late.id.incarnation) == (AttemptState.RUNNING, int(NOW) - 300)
    waits = a_pod(0, born=800, status={**stuck, "startTime": at(10)})
    assert [attempt.state for attempt in ends.apply(look(a_job(), waits)).attempts] == [AttemptState.LAUNCH_FAILED]


# -- nodes


def test_a_node_has_the_state_that_its_conditions_and_taints_say() -> None:
    documents = [
        a_node("down", "Unknown"), a_node("given", "True", "perdure.dev/given-up"),
        a_node("out", "True", "node.kubernetes.io/out-of-service"), a_node("drained", "True", "perdure.dev/drained"),
        a_node("busy", "True", "perdure.dev/drained"), a_node("closed", is_closed=True), a_node("well"),
        a_node("alone", is_closed=True),
    ]  # fmt: skip
    pods = [a_pod(0, "busy"), a_pod(1, "alone", owners=[]), a_pod(2, "well", code=3), a_pod(3, "well"),
            a_pod(4, "well", code=0), HeldObject(a_pod(5, "well"), NOW), a_pod(6, "")]  # fmt: skip
    found = {node.name: node for node in nodes_in(seen([a_job()], pods, [*documents, HeldObject(a_node("gone"), NOW)]))}
    assert {name: node.state for name, node in found.items()} == {
        "down": NodeState.DOWN, "given": NodeState.DOWN, "out": NodeState.DOWN, "drained": NodeState.DRAINED,
        "busy": NodeState.DRAINING, "closed": NodeState.DRAINED, "well": NodeState.UP, "alone": NodeState.DRAINED,
    }  # fmt: skip
    assert {name: node.gpus_used for name, node in found.items() if node.gpus_used} == {
        "busy": 4, "alone": 4, "well": 4,
    }  # fmt: skip
    assert {node.gpus for node in found.values()} == {6}
    assert {name for name, node in found.items() if node.by == "perdure"} == {"given", "drained", "busy"}
    assert {name for name, node in found.items() if node.is_set_down} == {"given", "out"}
    assert {name: node.since_s for name, node in found.items() if node.since_s} == {"down": NOW - 50}


def test_only_perdures_own_taints_come_and_go() -> None:
    node = a_node("n1", "True", "perdure.dev/drained", "perdure.dev/given-up", "theirs")
    kept = {"key": "theirs"}
    for action, taints in (
        (Undrain("n1", "e1"), [kept]),
        (Drain("n1", "e1", "why"), [kept, {"key": "perdure.dev/drained", "effect": "NoSchedule"}]),
        (Down("n1", "e1", "why"), [kept, {"key": "perdure.dev/given-up", "effect": "NoExecute"}]),
    ):
        assert node_patch(node, action)["spec"]["taints"] == taints
    assert node_patch(a_node("n1", "True", "perdure.dev/drained"), Undrain("n1", "e1"))["spec"]["taints"] is None


# -- what takes a job's place


def test_what_is_lifted_may_be_used_again_and_what_is_excluded_is_left_out_once() -> None:
    template = {"spec": {"affinity": terms(("a",), ("b",)), "nodeSelector": {"kubernetes.io/hostname": "c"}}}
    names = [
        [rule["values"] for rule in term.get("matchFields", ())] for term in terms_without(template, ("b", "c"), ("a",))
    ]
    assert names == [[["b"], ["c"]], [["b"], ["c"]]]
    assert placement_patch(template, ("b", "c"), ())["nodeSelector"] == {"kubernetes.io/hostname": None}
    assert "nodeSelector" not in placement_patch(template, ("b",), ())


@pytest.mark.parametrize(("limit", "failed", "left"), [(None, 2, 4), (3, 1, 2), (1, 5, 0), (0, 0, 0)])
def test_a_replacement_has_the_retries_that_are_left(limit: int | None, failed: int, left: int) -> None:
    document = a_job(spec={"backoffLimit": limit}, status={"failed": failed})
    made = replacement(JOB, document, Requeue(AttemptId("kube", "team.train", 1)), (), NOW)
    assert made["spec"]["backoffLimit"] == left


@pytest.mark.parametrize(
    ("labels", "delay_s", "is_suspended"), [({}, 0, False), ({}, 60, True), ({QUEUE: "q"}, 0, True)]
)
def test_a_replacement_waits_where_it_has_to(labels: dict[str, str], delay_s: float, is_suspended: bool) -> None:
    document = a_job(metadata={"labels": labels, "annotations": {"perdure.dev/resume-at": "5"}})
    action = Requeue(AttemptId("kube", "team.train", 1), delay_s=delay_s)
    made = replacement(JOB, document, action, (), NOW)
    assert made["spec"]["suspend"] is is_suspended
    resumes = made["metadata"]["annotations"].get("perdure.dev/resume-at")
    assert resumes == (str(NOW + delay_s) if delay_s else None)
