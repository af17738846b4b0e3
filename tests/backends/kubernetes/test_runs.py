"""How pods end, in the model's words, and which of their runs are one attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.backends.kubernetes.attempts import from_history, grouped, to_history
from perdure.backends.kubernetes.held import HeldObject
from perdure.backends.kubernetes.runs import PodRun, RunEnd, runs_of
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState

NOW = 1_800_000_000.0
DEAD = "dead1"


def at(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def disrupted(reason: str) -> dict[str, Any]:
    return {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(5)}]
    }


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": at(60), "finishedAt": at(10), **more}}
    return {"containerStatuses": [{"name": "main", "state": state}]}


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "because"}}
    return {"phase": "Pending", "startTime": at(400), "containerStatuses": [{"name": "main", "state": state}]}


def runs(status: dict[str, Any], node: str = "node1", gone_s: float | None = None, **metadata: Any) -> list[PodRun]:
    pod = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", "creationTimestamp": at(100), **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": status,
    }
    return list(runs_of(HeldObject(pod, gone_s), NOW, 300.0, lambda name: name == DEAD))


FAILED = {"phase": "Failed"}


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        ({"phase": "Succeeded", **ended(0, "Completed")}, AttemptState.COMPLETED, 0),
        ({**FAILED, **ended(3)}, AttemptState.FAILED, 3),
        ({**FAILED, **ended(139)}, AttemptState.FAILED, 139),
        ({**FAILED, **ended(137, "OOMKilled")}, AttemptState.OUT_OF_MEMORY, 137),
        ({**FAILED, **ended(128, "StartError")}, AttemptState.LAUNCH_FAILED, 128),
        ({**FAILED, "reason": "Evicted", "message": "The node was low on resource: memory. Threshold"},
         AttemptState.OUT_OF_MEMORY, 0),
        ({**FAILED, "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
         AttemptState.PREEMPTED, 0),
        ({**FAILED, "reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit"},
         AttemptState.FAILED, 0),
        ({**FAILED, "reason": "DeadlineExceeded"}, AttemptState.TIMEOUT, 0),
        ({**FAILED, "reason": "NodeLost"}, AttemptState.NODE_FAIL, 0),
        ({**FAILED, "reason": "UnexpectedAdmissionError"}, AttemptState.LAUNCH_FAILED, 0),
        ({**FAILED, **disrupted("PreemptionByScheduler")}, AttemptState.PREEMPTED, 0),
        ({**FAILED, **disrupted("EvictionByEvictionAPI"), **ended(143)}, AttemptState.PREEMPTED, 0),
        ({**FAILED, **disrupted("DeletionByTaintManager")}, AttemptState.PREEMPTED, 0),
        ({**FAILED, **disrupted("DeletionByPodGC")}, AttemptState.NODE_FAIL, 0),
        ({**FAILED, **disrupted("TerminationByKubelet"), "reason": "Terminated"}, AttemptState.NODE_FAIL, 0),
        (waiting("ImagePullBackOff"), AttemptState.LAUNCH_FAILED, 0),
        (waiting("CreateContainerConfigError"), AttemptState.LAUNCH_FAILED, 0),
        (FAILED, AttemptState.FAILED, 0),
    ],
)  # fmt: skip
def test_each_end_has_its_word(status: dict[str, Any], state: AttemptState, code: int) -> None:
    (run,) = runs(status)
    assert run.end is not None
    assert (run.end.state, run.end.code) == (state, code)


def test_a_pod_that_a_dead_node_lost_failed_with_the_node() -> None:
    going: dict[str, Any] = {"deletionTimestamp": at(-30), "deletionGracePeriodSeconds": 30}
    (run,) = runs({"phase": "Running", **disrupted("DeletionByTaintManager")}, DEAD, **going)
    assert run.end is not None
    assert run.end.state is AttemptState.NODE_FAIL
    (alive,) = runs({"phase": "Running"}, "node1", **going)
    assert alive.end is None  # it may end by itself until its time is over


def test_a_pod_that_was_deleted_while_it_ran_did_not_fail() -> None:
    """Its program was killed: that tells nothing of the program."""
    going: dict[str, Any] = {"deletionTimestamp": at(0), "deletionGracePeriodSeconds": 30}
    (run,) = runs({**FAILED, **ended(137)}, "node1", NOW, **going)
    assert run.end == RunEnd(AttemptState.REQUEUED, "its pod was deleted")
    (before,) = runs({**FAILED, **ended(3)}, "node1", NOW, deletionTimestamp=at(-60), deletionGracePeriodSeconds=30)
    assert before.end is not None
    assert before.end.code == 3  # it had failed by then


@pytest.mark.parametrize(
    ("until_ago_s", "gone_s", "ago_s"),
    [(20, None, 20), (20, NOW - 5, 20), (-20, NOW - 5, 5), (-20, None, 0)],
)
def test_a_pod_that_says_nothing_of_its_end_ended_when_it_was_to_be_gone(
    until_ago_s: float, gone_s: float | None, ago_s: float
) -> None:
    """Its node is dead: each look would see it end at that very moment else."""
    going: dict[str, Any] = {"deletionTimestamp": at(until_ago_s), "deletionGracePeriodSeconds": 30}
    (run,) = runs({"phase": "Running"}, DEAD, gone_s, **going)
    assert run.end_s == NOW - ago_s


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_start_that_takes_long_is_no_failure(reason: str) -> None:
    (run,) = runs(waiting(reason))
    assert run.end is None


def test_a_container_that_is_restarted_in_place_ran_twice() -> None:
    state = {"running": {"startedAt": at(5)}}
    before = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": at(60), "finishedAt": at(20)}}
    status = {"phase": "Running", "containerStatuses": [
        {"name": "main", "restartCount": 1, "state": state, "lastState": before}
    ]}  # fmt: skip
    first, second = runs(status)
    assert (first.born_s, first.is_previous, first.end and first.end.code) == (NOW - 100, True, 1)
    assert (second.born_s, second.is_previous, second.end) == (NOW - 5, False, None)
    groups = grouped([first, second], 1)
    assert [(len(group.runs), group.incarnation) for group in groups] == [(1, int(NOW) - 100), (1, int(NOW) - 5)]


def test_between_two_restarts_in_place_nothing_runs() -> None:
    before = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": at(60), "finishedAt": at(20)}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    told = {"name": "main", "restartCount": 3, "state": state, "lastState": before}
    (run,) = runs({"phase": "Running", "containerStatuses": [told]})
    assert (run.born_s, run.end and run.end.code) == (NOW - 60, 1)


def run(slot: str, born_s: float, end: tuple[AttemptState, float] | None = None, **more: Any) -> PodRun:
    state = RunEnd(end[0], "") if end else None
    fixed = {"node": f"n{slot}", "uid": f"{slot}-{born_s}", "round": ""} | more
    return PodRun("team", "p", slot=slot, born_s=born_s, end=state, end_s=end[1] if end else None, **fixed)


def slots(groups: Any) -> list[list[str]]:
    return [[f"{each.slot}@{each.born_s:.0f}" for each in group.runs] for group in groups]


def test_the_pod_that_takes_a_failed_ones_place_begins_an_attempt_with_those_that_still_run() -> None:
    gang = [run("0", 10.0), run("1", 10.0, (AttemptState.FAILED, 20.0)), run("2", 11.0), run("1", 30.0)]
    assert slots(grouped(gang, 3)) == [["1@10", "0@10", "2@11"], ["0@10", "2@11", "1@30"]]


def test_a_gang_that_is_still_coming_together_is_one_attempt() -> None:
    gang = [run("0", 10.0, (AttemptState.FAILED, 10.0)), run("1", 11.0), run("2", 12.0)]
    assert slots(grouped(gang, 3)) == [["0@10", "1@11", "2@12"]]


def test_the_rounds_that_a_jobset_counts_are_attempts() -> None:
    pods = [run("0", 10.0, round="0"), run("1", 10.0, round="0"), run("0", 10.0, uid="z", round="1")]
    assert [group.incarnation for group in grouped(pods, 2)] == [10, 11]


def test_of_failures_in_one_second_a_node_s_comes_first_and_a_deletion_last() -> None:
    gang = [run(str(place), 10.0, (state, 20.0)) for place, state in enumerate(
        (AttemptState.REQUEUED, AttemptState.FAILED, AttemptState.NODE_FAIL)
    )]  # fmt: skip
    first = grouped(gang, 3)[0].first_failed
    assert first is not None
    assert first.slot == "2"
    first = grouped(gang[:2], 2)[0].first_failed
    assert first is not None
    assert first.slot == "1"


def test_a_history_is_read_as_it_was_written_but_for_the_nodes() -> None:
    attempt = Attempt(
        AttemptId("c", "team.train", 7), AttemptState.NODE_FAIL, ("a", "b"), 1.0, 2.0, 3, 4, "why", 8, "u"
    )
    assert from_history(to_history([attempt]), "team.train", "c", "u") == [replace(attempt, nodes=())]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"i":-1,"s":"failed","b":0,"e":0}]', '[{"i":1,"s":"x","b":0,"e":0}]']
)
def test_a_history_that_others_wrote_over_is_none(text: str) -> None:
    assert from_history(text, "j", "c", "u") == []
