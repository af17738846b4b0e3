"""What HTCondor is told: each command names the run that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.backends.condor.plans import CondorCommands, for_job, for_node
from perdure.backends.condor.requirements import StartPlace
from perdure.model.actions import (
    Cancel,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId

RUN = AttemptId("c", "7.0", 2)
FAILED: dict[str, Any] = {"clusterid": 7, "procid": 0, "numshadowstarts": 2, "jobstatus": 5, "holdreasoncode": 3}
FAILED |= {"requirements": "/Expr(TARGET.Cpus > 1)/", "numholds": 1}
IDLE = FAILED | {"jobstatus": 1}
RUNS = FAILED | {"jobstatus": 2, "allowedjobduration": 60}
ONLY = "ClusterId == 7 && ProcId == 0 && ifThenElse(isUndefined(NumShadowStarts), 0, NumShadowStarts) == 2"


def steps(action: JobAction, ad: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    plan = for_job(action, ad, None, 1000.0)
    assert isinstance(plan, CondorCommands), plan
    return plan.steps


def status(action: JobAction, ad: dict[str, Any] | None, left: dict[str, Any] | None = None) -> OutcomeStatus:
    plan = for_job(action, ad, left, 1000.0)
    assert isinstance(plan, Outcome), plan
    return plan.status


def test_a_requeue_changes_where_the_job_may_start_and_lets_it_go() -> None:
    edit, release = steps(Requeue(RUN, ("n1", "n2"), delay_s=30.0, comment='its "disk"'), FAILED)
    wanted = '(TARGET.Cpus > 1) && !stringListIMember(TARGET.Machine,"n1,n2") && time() >= 1030'
    assert edit[:5] == ("condor_qedit", "-constraint", ONLY, "Requirements", wanted)
    assert edit[5:] == ("PerdureComment", '"its \\"disk\\""', "PerdureDoneRequeue", '"requeue:c/7.0#2"')
    assert release[:3] == ("condor_release", "-constraint", f"{ONLY} && JobStatus == 5")


def test_nodes_are_lifted_and_the_owners_words_stay() -> None:
    ad = FAILED | {"requirements": f"/Expr({StartPlace('Cpus > 1 || true', ('n1', 'n2')).words})/"}
    assert steps(Requeue(RUN, lift=("n1", "n2")), ad)[0][4] == "Cpus > 1 || true"
    assert '"n2,n3"' in steps(Exclude(RUN, ("n3",), lift=("n1",)), ad)[0][4]


@pytest.mark.parametrize(
    ("action", "ad", "outcome"),
    [
        (Requeue(RUN), RUNS, "superseded"),
        (Requeue(RUN), FAILED | {"numshadowstarts": 3}, "superseded"),
        (Requeue(RUN), FAILED | {"numshadowstarts": 3, "perduredonerequeue": "requeue:c/7.0#2"}, "done"),
        (Requeue(RUN), IDLE | {"perduredonerequeue": "requeue:c/7.0#2"}, "done"),
        (Requeue(RUN), FAILED | {"holdreasoncode": 1}, "refused"),
        (Requeue(RUN, ("n1",)), FAILED | {"requirements": '/Expr(Machine == "n1")/'}, "refused"),
        (Requeue(RUN, node_count=2), FAILED, "refused"),
        (Hold(RUN), RUNS, "superseded"),
        (Hold(RUN), FAILED, "superseded"),
        (Hold(RUN), FAILED | {"holdreasoncode": 1}, "done"),
        (Hold(RUN, "x"), IDLE | {"numholds": 2, "perduredonehold": "hold:c/7.0#2@x 1"}, "done"),
        (Release(RUN), FAILED, "superseded"),
        (Release(RUN, "x"), FAILED | {"holdreasoncode": 1, "holdreason": "mine (by user ada)"}, "superseded"),
        (Preempt(RUN), IDLE, "superseded"),
        (Preempt(RUN), IDLE | {"perduredonepreempt": "preempt:c/7.0#2"}, "done"),
        (Cancel(RUN), FAILED | {"jobstatus": 3}, "done"),
        (Extend(RUN, 50.0), RUNS, "done"),
        (Extend(RUN, 50.0), IDLE, "superseded"),
    ],
)
def test_what_needs_no_command(action: JobAction, ad: dict[str, Any], outcome: str) -> None:
    assert status(action, ad) == outcome


def test_a_job_that_has_left_the_queue() -> None:
    left = IDLE | {"jobstatus": 4}
    assert status(Requeue(RUN), None, left) is OutcomeStatus.REFUSED
    assert status(Hold(RUN), None, left) is OutcomeStatus.SUPERSEDED
    assert status(Cancel(RUN), None, IDLE | {"jobstatus": 3}) is OutcomeStatus.DONE
    assert status(Requeue(RUN), None, None) is OutcomeStatus.SUPERSEDED


def test_own_holds_are_released_and_time_is_only_added() -> None:
    held = FAILED | {"holdreasoncode": 1, "holdreason": "perdure hold:c/7.0#2@x (by user condor)"}
    assert steps(Release(RUN, "x"), held)[0][0] == "condor_release"
    more_time = ("condor_qedit", "-forward", "-constraint", ONLY, "AllowedJobDuration", "90")
    assert steps(Extend(RUN, 90.4), RUNS) == (more_time,)
    assert [step[0] for step in steps(Hold(RUN), IDLE)] == ["condor_qedit", "condor_hold"]
    assert [step[0] for step in steps(Preempt(RUN), RUNS)] == ["condor_qedit", "condor_vacate_job"]
    gang = FAILED | {"jobuniverse": 11, "maxhosts": 3}
    assert steps(Requeue(RUN, node_count=2), gang)[0][5:9] == ("MinHosts", "2", "MaxHosts", "2")


SLOTS: list[dict[str, Any]] = [
    {"name": "slot1@n1", "machine": "n1", "slottype": "Partitionable"},
    {"name": "slot1_1@n1", "machine": "n1", "slottype": "Dynamic", "jobid": "7.0", "retirementtimeremaining": 9000},
]


def drained(reason: str) -> list[dict[str, Any]]:
    return [slot | {"draining": True, "drainreason": reason} for slot in SLOTS]


@pytest.mark.parametrize(
    ("action", "slots", "outcome"),
    [
        (Drain("n1", "bad", "1"), SLOTS, ["-graceful"]),
        (Drain("n1", "bad", "1"), [SLOTS[1] | {"retirementtimeremaining": 5}], "refused"),
        (Drain("n1", "bad", "1"), drained("new memory"), "done"),
        (Drain("n1", "bad", "1"), [], "refused"),
        (Down("n1", "bad", "1"), SLOTS, ["-fast"]),
        (Down("n1", "bad", "1"), drained("perdure drain:n1:1: bad"), ["-cancel", "-fast"]),
        (Down("n1", "bad", "1"), drained("perdure down:n1:1: bad"), "done"),
        (Down("n1", "bad", "1"), drained("new memory"), "refused"),
        (Undrain("n1", "1"), drained("perdure down:n1:1: bad"), ["-cancel"]),
        (Undrain("n1", "1"), drained("new memory"), "superseded"),
        (Undrain("n1", "1"), SLOTS, "done"),
    ],
)
def test_machines(action: NodeAction, slots: list[dict[str, Any]], outcome: str | list[str]) -> None:
    plan = for_node(action, slots)
    if isinstance(plan, Outcome):
        assert plan.status == outcome
    else:
        assert [step[1] for step in plan.steps] == outcome
        assert all(step[-1] == "slot1@n1" for step in plan.steps)
