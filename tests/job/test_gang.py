"""Launchers of one step, each around one task: they judge a hang together, and hear of a rank that is gone."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.hangs.rank_state import Life, RankState
from perdure.job.exit_report import ExitReason, ExitReport, write
from perdure.job.files import JobFiles
from perdure.job.gang import Gang
from perdure.job.identity import Task
from perdure.model.exits import FAILED_SAID, HANG_ENDED
from tests.job.launching import finish, on_linux, start

pytestmark = on_linux
SETTINGS = (
    """ExecOptions(hang=HangRule(after_s=1.5, is_exact=True, soft_s=0.4, grace_s=5.0), poll_s=0.05, look_s=0.2)"""
)
RANK = """
import os, signal, sys, time
rank = int(os.environ["SLURM_PROCID"])
begin = time.monotonic()
while time.monotonic() < begin + 0.5:
    print(f"step {(time.monotonic() - begin) * 10:.0f}", flush=True)
    time.sleep(0.1)
"""
WAITS = "signal.pause()"  # for anything: nothing tells that it is not its peers


def step(
    directory: Path, programs: list[Any], size: int | None = None, settings: str = SETTINGS
) -> tuple[list[Any], str]:
    """One launcher for each program, as a step of Slurm has them; exit codes, and what was written to the log."""
    with contextlib.ExitStack() as stack:
        started, logs = [], []
        for rank, program in enumerate(programs):
            logs.append(directory / f"{rank}.log")
            variables = {
                "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_ID": "0",
                "SLURM_STEP_NUM_TASKS": str(size or len(programs)), "SLURMD_NODENAME": f"n{rank}",
            }  # fmt: skip
            out = stack.enter_context(logs[-1].open("wb"))
            argv = [sys.executable, "-c", RANK + program]
            started.append(
                start(directory / "fence", argv, settings=settings, variables=variables, stdout=out, stderr=out)
            )
        codes = [finish(process)[0] for process in started]
    return codes, "".join(log.read_text() for log in logs)


def hang_notes(directory: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in directory.glob("fence/attempts/1/*/hang.json")]


def ended(log: str) -> str:
    """What the launcher that judges says at the end."""
    (said,) = [line for line in log.splitlines() if line.startswith(HANG_ENDED)]
    return said


@pytest.mark.parametrize(
    ("stuck", "says"),
    [
        pytest.param("time.sleep(60)", "sleeps", marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), signal.SIGSTOP)", "it is stopped, by a signal", marks=pytest.mark.slow),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "waits for a lock, in Python"),
    ],
)
def test_one_of_them_judges_all_ranks_and_all_end(tmp_path: Path, stuck: str, says: str) -> None:
    codes, log = step(tmp_path, [WAITS, f"if rank == 1: {stuck}\n{WAITS}", WAITS])
    assert codes == [75, 75, 75], log
    assert f"rank 1 on n1 stopped first: {says}" in ended(log)
    assert "; ranks 0, 2 wait for it; no sign of life" in ended(log)
    assert [note["note"] for note in hang_notes(tmp_path) if "stopped first" in note["note"]] != []


def test_a_rank_that_ended_well_while_the_others_wait_for_it_is_named(tmp_path: Path) -> None:
    codes, log = step(tmp_path, [WAITS, "sys.exit(0)"])
    assert codes == [75, 0], log
    assert "rank 1 on n1 stopped first: it has ended with exit code 0; rank 0 waits for it" in ended(log)


@pytest.mark.slow
def test_of_a_rank_that_was_never_seen_nothing_is_said(tmp_path: Path) -> None:
    codes, log = step(tmp_path, [WAITS, WAITS], size=3)
    assert codes == [75, 75], log
    assert "of 1 rank nothing is known" in ended(log)


def test_where_one_goes_on_the_others_are_ended_and_it_is_not(tmp_path: Path) -> None:
    """A rank of its own, as in a step of independent tasks."""
    goes_on = "while time.monotonic() < begin + 6: print('step 7', flush=True); time.sleep(0.1)"
    codes, log = step(tmp_path, ["time.sleep(60)", goes_on])
    assert codes == [75, 0], log
    assert "rank 0 on n0 stopped first: sleeps" in ended(log)


def test_a_command_that_ended_well_just_before_names_nobody(tmp_path: Path) -> None:
    """Two commands one after the other in one step, as a script around mpirun has them."""
    assert step(tmp_path, ["sys.exit(0)", "sys.exit(0)"])[0] == [0, 0]
    codes, log = step(tmp_path, [WAITS, "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"])
    assert codes == [75, 75], log
    assert "rank 1 on n1 stopped first: waits for a lock, in Python; rank 0 waits for it" in ended(log)


def test_while_one_works_without_a_word_nobody_is_ended(tmp_path: Path) -> None:
    works = "\nwhile time.monotonic() < begin + 5: pass"
    codes, log = step(tmp_path, ["time.sleep(5)", works])
    assert codes == [0, 0], log
    assert "rank 1 on n1 works" in log


def test_a_rank_that_failed_is_told_of_while_the_others_wait(tmp_path: Path) -> None:
    lives = "\nfor _ in range(100): print('step 1', flush=True); time.sleep(0.1)"
    codes, log = step(tmp_path, ["sys.exit(3)", lives, lives])
    assert codes[0] == 3
    assert log.count(f"{FAILED_SAID}rank 0 on n0 ended with exit code 3") == 1, log


def test_of_a_rank_that_failed_nothing_is_said_while_the_others_work(tmp_path: Path) -> None:
    works = "\nwhile time.monotonic() < begin + 9: pass"
    codes, log = step(tmp_path, ["sys.exit(3)", works], settings="ExecOptions(hang=HangRule(after_s=0.0), look_s=0.2)")
    assert (codes, FAILED_SAID in log) == ([3, 0], False)


def gang(directory: Path, rank: int, step: str = "0") -> Gang:
    """One launcher's view of a step of three tasks."""
    task = Task(f"n{rank}", f"n{rank}", 100 + rank, rank=rank)
    tracks = JobFiles.of(directory, 1, task)
    tracks.make()
    return Gang(tracks, task, {"SLURM_STEP_ID": step, "SLURM_STEP_NUM_TASKS": "3"})


def test_an_alarm_is_the_first_ones_and_can_be_called_off(tmp_path: Path) -> None:
    first, second = gang(tmp_path, 0), gang(tmp_path, 1)
    assert (first.call(), second.call()) == (True, False)
    assert (first.alarm().is_own, second.alarm().is_own, second.alarm().rank) == (True, False, 0)
    second.call_off()
    assert second.alarm()
    first.call_off()
    assert (first.alarm(), second.alarm(), second.call()) == (None, None, True)
    second.end()
    second.call_off()
    assert first.alarm().ends


def test_of_two_that_judge_at_the_same_time_one_says_that_it_ends(tmp_path: Path) -> None:
    first, second = gang(tmp_path, 0), gang(tmp_path, 1)
    said = [second.end(), first.end(), second.end()]
    assert said == [True, False, True]
    assert first.alarm().ends
    assert second.alarm().ends
    (word,) = tmp_path.glob("attempts/1/gang-0/end.json")
    told = json.loads(word.read_text())
    word.write_text(json.dumps({**told, "time_s": time.time() - 60}))  # of an earlier command
    assert [first.end(), second.end()] == [True, False]


def test_what_another_step_an_earlier_command_or_another_user_says_counts_for_nothing(tmp_path: Path) -> None:
    mine, of_another_step = gang(tmp_path, 0), gang(tmp_path, 1, step="1")
    of_another_step.call()
    of_another_step.fail(1, 0)
    assert (mine.alarm(), mine.failed()) == (None, None)
    gang(tmp_path, 2).call()
    (alarm,) = tmp_path.glob("attempts/1/gang-0/alarm.json")
    assert mine.alarm()
    told = json.loads(alarm.read_text())
    alarm.write_text(json.dumps({**told, "time_s": time.time() - 60}))
    assert mine.alarm() is None
    if not os.geteuid():
        alarm.write_text(json.dumps(told))
        os.chown(alarm, 4711, 4711)
        assert mine.alarm() is None


def test_what_each_sees_is_told_to_the_others_and_not_to_itself(tmp_path: Path) -> None:
    first, second = gang(tmp_path, 0), gang(tmp_path, 1)
    sight = RankState(1, "n1", Life.ELSEWHERE, "sleeps", step=4, stack=("a.py:3 in f",))
    since_s = time.time() - 1
    second.tell([sight])
    assert first.told(since_s) == [[sight]]
    assert second.told(since_s) == first.told(time.time() + 60) == []


@pytest.mark.parametrize(
    ("code", "ended_s", "told", "counts"),
    [
        (0, 1.0, {}, True), (3, 1.0, {}, False), (0, -60.0, {}, False), (0, 1.0, {"is_final": False}, False),
        (0, -0.5, {}, False), (0, 1.0, {"step_id": "1"}, False), (0, 1.0, {"rank": 0}, False),
    ],
)  # fmt: skip
def test_who_has_ended_well_since_the_start_is_known_by_its_exit_report(
    tmp_path: Path, code: int, ended_s: float, told: Mapping[str, Any], counts: bool
) -> None:
    """Of this step: the one before it may have ended a moment ago."""
    mine, now = gang(tmp_path, 0), time.time()
    gang(tmp_path, 1)
    told = {"rank": 1, "step_id": "0", **told}
    report = ExitReport("7", 1, 1, "n1", "n1", 101, ExitReason.EXIT, code, now - 90, now + ended_s, **told)
    write(JobFiles.of(tmp_path, 1, Task("n1", "n1", 101)).exit_report, report)
    assert mine.ended() == ([RankState(1, "n1", Life.ENDED)] if counts else [])
