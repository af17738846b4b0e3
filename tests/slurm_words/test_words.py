"""Slurm's words in ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState
from perdure.slurm_words.durations import duration_s
from perdure.slurm_words.states import attempt_state, exit_status, is_reserved, job_state, node_state
from perdure.slurm_words.tres import gpus, node_total

A, J, N = AttemptState, JobState, NodeState


@pytest.mark.parametrize(
    ("word", "exit_code", "reason", "state"),
    [
        ("COMPLETED", "0:0", "", A.COMPLETED),
        ("FAILED", "3:0", "NonZeroExitCode", A.FAILED),
        ("FAILED", "0:53", "", A.LAUNCH_FAILED),
        ("FAILED", "1:0", "JobLaunchFailure", A.LAUNCH_FAILED),
        ("FAILED", "0:15", "JobLaunchFailure", A.FAILED),  # 22.05 says so of every script that a signal ended
        ("FAILED", "0:11", "JobLaunchFailure", A.FAILED),
        ("FAILED", "0:15", "RaisedSignal:15(Terminated)", A.FAILED),
        ("LAUNCH_FAILED", "0:0", "", A.LAUNCH_FAILED),
        ("TIMEOUT", "0:15", "", A.TIMEOUT),
        ("NODE_FAIL", "0:0", "", A.NODE_FAIL),
        ("BOOT_FAIL", "0:0", "", A.BOOT_FAIL),
        ("OUT_OF_MEMORY", "0:125", "", A.OUT_OF_MEMORY),
        ("OUT_OF_ME+", "0:125", "", A.OUT_OF_MEMORY),
        ("PREEMPTED", "0:0", "", A.PREEMPTED),
        ("DEADLINE", "0:0", "", A.DEADLINE),
        ("CANCELLED", "0:15", "", A.CANCELLED),
        ("CANCELLED by 1000", "0:15", "", A.CANCELLED),
        ("CANCELLED+", "0:15", "", A.CANCELLED),
        ("REQUEUED", "0:0", "", A.REQUEUED),
        ("REQUEUED", "75:0", "", A.FAILED),
        ("REQUEUE_HOLD", "0:0", "", A.REQUEUED),
        ("SPECIAL_EXIT", "78:0", "", A.FAILED),
        ("SUSPENDED", "0:0", "", A.SUSPENDED),
        ("RESIZING", "0:0", "", A.RUNNING),
        ("RUNNING", "0:0", "", A.RUNNING),
        ("A_WORD_OF_2030", "1:0", "", A.FAILED),
    ],
)
def test_how_an_attempt_stands(word: str, exit_code: str, reason: str, state: AttemptState) -> None:
    assert attempt_state(word, *exit_status(exit_code), reason) is state


@pytest.mark.parametrize(
    ("word", "priority", "reason", "state"),
    [
        ("PENDING", 5, "Resources", J.PENDING),
        ("PENDING", 0, "JobHeldUser", J.HELD),
        ("PENDING", 5, "JobHeldAdmin", J.HELD),
        ("PENDING", 5, "launch_failed_requeued_held", J.HELD),
        ("PENDING", 5, "job_requeued_in_held_state", J.HELD),
        ("PENDING", 5, "JobHoldMaxRequeue", J.HELD),
        ("SPECIAL_EXIT", 5, "JobHeldUser", J.HELD),
        ("REQUEUE_HOLD", 5, "", J.HELD),
        ("REQUEUED", 5, "", J.PENDING),
        ("CONFIGURING", 5, "", J.RUNNING),
        ("COMPLETING", 5, "", J.RUNNING),
        ("STOPPED", 5, "", J.SUSPENDED),
        ("COMPLETED", 5, "", J.COMPLETED),
        ("CANCELLED", 5, "", J.CANCELLED),
        ("TIMEOUT", 5, "", J.FAILED),
        ("NODE_FAIL", 5, "", J.FAILED),
    ],
)
def test_where_a_job_stands(word: str, priority: int, reason: str, state: JobState) -> None:
    assert job_state(word, priority, reason) is state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", N.UP),
        ("MIXED+PLANNED", N.UP),
        ("IDLE+CLOUD+POWERED_DOWN", N.UP),
        ("IDLE~", N.UP),
        ("MIXED+DRAIN", N.DRAINING),
        ("ALLOCATED+DRAIN", N.DRAINING),
        ("DRAINING", N.DRAINING),
        ("IDLE+DRAIN", N.DRAINED),
        ("DRAINED*", N.DRAINED),
        ("MIXED+FAIL", N.DRAINING),
        ("DOWN*", N.DOWN),
        ("DOWN+DRAIN", N.DOWN),
        ("IDLE+INVAL", N.DOWN),
        ("IDLE+NOT_RESPONDING", N.UNKNOWN),
        ("IDLE*", N.UNKNOWN),
        ("UNKNOWN", N.UNKNOWN),
        ("FUTURE", None),
    ],
)
def test_what_a_node_can_be_used_for(text: str, state: NodeState | None) -> None:
    assert node_state(text) is state


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("cpu=2,gres/gpu=4,mem=1G", 4),
        ("cpu=2,gres/gpu=4,gres/gpu:h100=4", 4),
        ("gres/gpu:h100=3,gres/gpu:a100=1", 4),
        ("gpu:h100:4(S:0-1),gpu:a100:2(S:1)", 6),
        ("gres:gpu:2", 2),
        ("gres:gpu:h100:2", 2),
        ("gres/gpu:2", 2),
        ("gpu", 1),
        ("gpu:h100", 1),
        ("cpu=2,mem=1G", None),
        ("gres/gpumem=4", None),
        ("(null)", None),
        ("", None),
    ],
)
def test_gpus_are_counted(text: str, count: int | None) -> None:
    assert gpus(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("01:00:00", 3600.0), ("1-00:30:00", 88200.0), ("05:30", 330.0), ("UNLIMITED", None), ("Partition_Limit", None)],
)
def test_durations_are_read(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


@given(st.text(max_size=60))
def test_any_text_has_a_meaning(text: str) -> None:
    attempt_state(text, *exit_status(text), text)
    job_state(text, 1, text)
    node_state(text)
    gpus(text)
    duration_s(text)
    node_total(text)


def test_a_reservation_in_force_keeps_other_jobs_off_a_node() -> None:
    for state in ("IDLE+MAINTENANCE+RESERVED", "MIXED+RESERVED", "IDLE+MAINT"):
        assert is_reserved(state)
        assert node_state(state) is NodeState.UP
    assert not any(map(is_reserved, ("IDLE", "MIXED+PLANNED", "DOWN*+DRAIN")))
