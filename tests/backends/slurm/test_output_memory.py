"""Whose batch scripts are asked for, of jobs that failed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from perdure.backends.slurm import output_memory
from perdure.backends.slurm.output_memory import OutputMemory
from perdure.backends.slurm.outputs import outputs_of
from perdure.backends.slurm.records import JobRecord, read_jobs
from tests.backends.slurm.text import MARK, job

START = 1_800_000_000


class Controller:
    """It has every script, and notes whose was asked for."""

    def __init__(self) -> None:
        self.asked = []

    def ask(self, command: str) -> Controller:
        self.asked += [int(found) for found in re.findall(r"^write batch_script (\d+) -$", command)]
        return self

    out, complaint = b"#!/bin/sh\n", ""


class Site:
    known = None

    def ask(self, scontrol: Any) -> None:
        pass


def memory_and_controller() -> tuple[OutputMemory, Any]:
    nobody: Any = None
    site: Any = Site()
    return OutputMemory(nobody, nobody, site, {}), Controller()


def failed(number: int, ended: int = 60, **more: Any) -> JobRecord:
    said: dict[str, Any] = {"state": "FAILED", "reason": "NonZeroExitCode", "exit_code": "1:0", "start": START} | more
    (found,) = read_jobs(job(number, end=START + ended, **said).encode(), MARK).whole
    return found


def test_of_more_failed_jobs_than_are_asked_for_the_latest_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_memory, "MAX_SCRIPTS", 5)
    memory, controller = memory_and_controller()
    found = memory.ask_scripts(controller, [failed(100 + n, ended=n) for n in range(12)])
    assert controller.asked == [111, 110, 109, 108, 107]
    assert found.keys() == {str(number) for number in controller.asked}


def test_one_that_was_put_back_is_asked_for_before_those_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_memory, "MAX_SCRIPTS", 1)
    memory, controller = memory_and_controller()
    back: dict[str, Any] = {"state": "PENDING", "reason": "BeginTime", "restarts": 1, "start": "Unknown"}
    (waiting,) = read_jobs(job(7, **back).encode(), MARK).whole
    memory.ask_scripts(controller, [failed(8), waiting])
    assert controller.asked == [7]


def test_tasks_of_one_array_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_memory, "MAX_SCRIPTS", 2)
    memory, controller = memory_and_controller()
    tasks = [failed(20 + n, before_name=f"ArrayJobId=20 ArrayTaskId={n} ") for n in range(4)]
    memory.ask_scripts(controller, [*tasks, failed(10, ended=1)])
    assert controller.asked == [20, 10]


@pytest.mark.parametrize(("now", "asked"), [({}, []), ({"uid": 1001}, [7]), ({"work_dir": "/else"}, [7])])
def test_what_is_remembered_of_another_job_of_the_same_number_is_not_this_ones(
    now: dict[str, Any], asked: list[int]
) -> None:
    """A slurmctld that lost its state gives its numbers out again."""
    memory, controller = memory_and_controller()
    memory.known["7"] = outputs_of(failed(7), b"#!/bin/sh\n", {})
    memory.ask_scripts(controller, [failed(7, **now)])
    assert controller.asked == asked
