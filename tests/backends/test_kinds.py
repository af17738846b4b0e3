"""What each kind of resource manager says of itself: how often it may be asked, and what a person can paste."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.backends.registry import BACKENDS
from perdure.backends.slurm.settings import SlurmSettings
from perdure.model.jobs import Job, JobState

MINUTE_S = 60.0


@pytest.mark.parametrize("poll_s", [None, 0.5, 2.0, 6.0, 30.0, 600.0])
@pytest.mark.parametrize("name", BACKENDS)
def test_looks_that_are_due_find_room_in_what_may_be_asked(name: str, poll_s: float | None) -> None:
    """And a manager of its own is not asked more often than ten times a minute, unless the operator says so."""
    kind = BACKENDS[name]
    every_s, budget = poll_s or kind.look_every_s(kind.settings()), kind.call_budget(kind.settings(), poll_s)
    for allowed in (budget.looks, budget.rounds, budget.early_looks):
        assert allowed is None or allowed * every_s >= MINUTE_S
    if budget.looks is not None:
        assert budget.looks == max(10.0, MINUTE_S / poll_s if poll_s else 0.0)


@pytest.mark.parametrize("poll_s", [None, 0.5, 600.0])
def test_looks_that_an_operator_set_are_as_many(poll_s: float | None) -> None:
    kind, settings = BACKENDS["slurm"], SlurmSettings(looks_per_minute=4)
    assert kind.call_budget(settings, poll_s).looks == 4
    assert kind.look_every_s(settings) == MINUTE_S / 3.0  # one look is left for what is asked for at once


def job(state: JobState, job_id: str, **known: Any) -> Job:
    return Job("c", job_id, "train", "ada", state, 0.0, **known)


@pytest.mark.parametrize(
    ("name", "asked", "command"),
    [
        ("slurm", job(JobState.FAILED, "7"), "sbatch --exclude=n1,n2 SCRIPT"),
        ("slurm", job(JobState.PENDING, "7"), "scontrol update JobId=7 ExcNodeList=n1,n2"),
        ("slurm", job(JobState.PENDING, "7", excluded=("n9", "x;y")), "scontrol update JobId=7 ExcNodeList=n9,n1,n2"),
        ("slurm", job(JobState.PENDING, "7", excluded=("n2", "n1")), ""),
        ("slurm", job(JobState.RUNNING, "7"), ""),
        ("slurm", job(JobState.PENDING, "7;reboot"), ""),
        ("slurm", job(JobState.FAILED, "7;reboot"), ""),
        (
            "condor",
            job(JobState.HELD, "7.0"),
            'condor_qedit 7.0 Requirements "($(condor_q 7.0 -af:r Requirements))'
            ' && (TARGET.Machine != \\"n1\\") && (TARGET.Machine != \\"n2\\")"',
        ),
        ("condor", job(JobState.RUNNING, "7.0"), ""),
        ("condor", job(JobState.FAILED, "7.0"), ""),
        ("condor", job(JobState.PENDING, "7"), ""),
        ("local", job(JobState.PENDING, "7"), ""),
        ("kubernetes", job(JobState.PENDING, "ada/train"), ""),
    ],
)  # fmt: skip
def test_what_a_person_can_paste_so_that_a_job_runs_elsewhere(name: str, asked: Job, command: str) -> None:
    assert BACKENDS[name].command_elsewhere(asked, ["n1", "n2"]) == command


def test_no_node_of_a_strange_name_gets_into_a_command() -> None:
    asked = job(JobState.PENDING, "7.0")
    assert BACKENDS["condor"].command_elsewhere(asked, ['n1") || true; "']) == ""
    assert "true" not in BACKENDS["condor"].command_elsewhere(asked, ['n1") || true; "', "n2"])
