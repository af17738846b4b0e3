"""Hangs of real programs under ``perdure exec``: ended with 75; slow ones are left alone."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.job import files
from perdure.job.beats import Beater, BeatReader
from perdure.job.exit_report import ExitReason
from perdure.job.hang_watch import HangWatch
from perdure.job.options import ExecOptions, settled
from perdure.job.output import OutputFiles
from perdure.job.silence import HangRule, Tier
from perdure.model.exits import ExitRequest
from tests.job.launching import (
    children_of,
    exit_report_in,
    finish,
    is_alive,
    is_stopped,
    on_linux,
    pass_time,
    python,
    start,
    wait_until,
)

SETTINGS = (
    "ExecOptions(hang=HangRule(after_s={after}, min_gaps=3, soft_s=0.2, grace_s={grace}), look_s=0.02, poll_s=0.02,"
    " beat_s=0.0{more})"
)


def settings(after: float = 1.5, grace: float = 30.0, more: str = "") -> str:
    return SETTINGS.format(after=after, grace=grace, more=more)


BEATS = """
import sys, time
from perdure.job import beat
for step in range(int(sys.argv[1])):
    beat(step)
    time.sleep(float(sys.argv[2]))
"""
HANGS = "\ntime.sleep(3600)"
DEAF = "\nimport signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def watch(directory: Path, **rule: Any) -> HangWatch:
    return HangWatch(HangRule(**rule), BeatReader(directory), OutputFiles(()), 0.0)


def test_a_step_may_be_as_much_newer_than_its_beat_as_beats_are_apart(tmp_path: Path) -> None:
    watched = watch(tmp_path, after_s=10.0, is_exact=True, beat_s=2.0)
    Beater(tmp_path / "rank-0.json").beat(1, 0.0)
    assert [watched.look(now) for now in (1.0, 12.9, 13.1)] == [None, None, Tier.ALARM]


def test_what_is_heard_is_dated_by_the_clock_that_was_given(tmp_path: Path) -> None:
    now = 1e9
    watched = HangWatch(HangRule(after_s=10.0), BeatReader(tmp_path), OutputFiles(()), now, lambda: now)
    beater = Beater(tmp_path / "rank-0.json")
    beater.beat(1, 0.0)
    watched.look(now)
    now += 4.0
    assert watched.told(None) == (1, 4.0)
    beater.beat(2, 1.0)
    assert watched.last_step() == 2
    assert watched.silent_s(now + 3.0) == 3.0


def test_a_program_of_which_nothing_is_seen_is_judged_only_where_it_must_beat(tmp_path: Path) -> None:
    assert watch(tmp_path, start_within_s=5.0).look(100.0) is None
    assert watch(tmp_path, start_within_s=5.0, must_beat=True).look(100.0) is Tier.ALARM


def test_a_program_that_stops_beating_is_ended_and_asks_for_a_retry(tmp_path: Path) -> None:
    process = start(tmp_path, python(BEATS + HANGS, 20, 0.04), settings=settings())
    code, _, err = finish(process)
    report = exit_report_in(tmp_path)
    assert (code, report.reason, report.wish, report.exit_code) == (75, ExitReason.HANG, ExitRequest.RETRY, 75)
    assert (report.step, report.signal) == (19, signal.SIGTERM)
    assert "last at step 19" in err
    (task,) = files.tasks(tmp_path)
    assert json.loads(task.hang.read_bytes())["step"] == 19


def test_one_that_does_not_end_when_told_is_killed(tmp_path: Path) -> None:
    code, _, err = finish(start(tmp_path, python(DEAF + BEATS + HANGS, 20, 0.04), settings=settings(grace=0.1)))
    assert (code, exit_report_in(tmp_path).signal) == (75, signal.SIGKILL)
    assert "it is killed" in err


def test_one_that_has_beaten_is_judged_by_that_whatever_it_goes_on_to_print(tmp_path: Path) -> None:
    goes_on = "\nwhile True:\n    print('step 21', flush=True)\n    time.sleep(0.1)"
    with (tmp_path / "out").open("wb") as out:
        argv = python(BEATS + goes_on, 20, 0.04)
        code, _, _ = finish(start(tmp_path / "fence", argv, settings=settings(), stdout=out, stderr=out))
    assert code == 75


WRITES = """
import sys, time
for line in range(int(sys.argv[1])):
    print(line, flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_one_that_never_beats_is_judged_by_its_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        process = start(
            tmp_path / "fence", python(WRITES + HANGS, 15, 0.05), settings=settings(), stdout=log, stderr=log
        )
        assert process.wait(60) == 75
    assert exit_report_in(tmp_path / "fence").reason is ExitReason.HANG


SAYS_ONE_THING = "import time; print('starts', flush=True)" + HANGS
STARTS_WITHIN = "ExecOptions(hang=HangRule(start_within_s=0.3, must_beat={}, soft_s=0.1), look_s=0.02, poll_s=0.02)"


def test_one_that_hangs_at_its_start_is_ended(tmp_path: Path) -> None:
    """As a rendezvous does that misses a peer: long before any pace is known."""
    with (tmp_path / "log").open("w") as log:
        argv, settings = python(SAYS_ONE_THING), STARTS_WITHIN.format(False)
        assert start(tmp_path / "fence", argv, settings=settings, stdout=log, stderr=log).wait(60) == 75
    assert exit_report_in(tmp_path / "fence").reason is ExitReason.HANG


@pytest.mark.parametrize(("must_beat", "run_s", "code"), [(True, 3600, 75), (False, 1, 0)])
def test_at_its_start_one_whose_output_goes_into_a_pipe_must_beat_where_that_is_asked(
    tmp_path: Path, must_beat: bool, run_s: int, code: int
) -> None:
    argv = python(f"import time; print('starts', flush=True); time.sleep({run_s})")
    assert finish(start(tmp_path, argv, settings=STARTS_WITHIN.format(must_beat)))[0] == code


def test_a_gang_has_two_hours_for_its_start_unless_one_says_otherwise() -> None:
    def within_s(*argv: str, **rule: Any) -> float | None:
        return settled(ExecOptions(hang=HangRule(**rule)), argv, {}).hang.start_within_s

    assert within_s("torchrun", "train.py") == 7200.0
    assert within_s("python", "train.py") is None
    assert within_s("torchrun", "train.py", start_within_s=0.0) == 0.0
    assert within_s("torchrun", "train.py", after_s=0.0) is None


def test_where_its_output_goes_into_a_pipe_nobody_judges(tmp_path: Path) -> None:
    code, out, _ = finish(start(tmp_path, python(WRITES + "\ntime.sleep(0.8)", 15, 0.05), settings=settings(after=0.1)))
    assert (code, out.split()[-1]) == (0, "14")
    assert exit_report_in(tmp_path).silent_s is None


@pytest.mark.parametrize("program", [(BEATS, 8, 0.2), (WRITES, 8, 0.2)], ids=["beats", "log"])
def test_a_slow_but_regular_program_is_left_alone(tmp_path: Path, program: tuple[str, int, float]) -> None:
    """With a floor below its usual gap."""
    with (tmp_path / "log").open("w") as log:
        process = start(tmp_path / "fence", python(*program), settings=settings(after=0.01), stdout=log, stderr=log)
        assert process.wait(60) == 0
    report = exit_report_in(tmp_path / "fence")
    assert (report.reason, report.exit_code) == (ExitReason.EXIT, 0)
    assert "no sign of life" not in (tmp_path / "log").read_text()


DUMPS = "\nimport faulthandler, signal; faulthandler.register(signal.SIGUSR1)"


KEEPS_A_LOG = """
import logging, sys, time
logging.basicConfig(filename=sys.argv[1], level=logging.INFO)
for number in range(8):
    logging.info(sys.argv[2], number)
    time.sleep(0.1)
time.sleep(float(sys.argv[3]))
"""


@on_linux
@pytest.mark.parametrize(
    ("says", "silent_s", "code", "to_file"),
    [
        ("step %d loss 0.1", 3600, 75, True),
        ("step %d loss 0.1", 3600, 75, False),
        ("look %d", 4, 0, False),
        pytest.param("look %d", 4, 0, True, marks=pytest.mark.slow),
        pytest.param("step %d", 0.5, 0, True, marks=pytest.mark.slow),
    ],
)
def test_one_that_tells_its_steps_in_a_log_of_its_own_is_judged_by_that(
    tmp_path: Path, says: str, silent_s: float, code: int, to_file: bool
) -> None:
    """By lines of steps alone: what else a log says, and one that says nothing of steps, proves no life and no hang."""
    exact = "ExecOptions(hang=HangRule(after_s=1.5, is_exact=True, soft_s=0.2, grace_s=5.0), look_s=0.05, poll_s=0.02)"
    with (tmp_path / "out").open("wb") as out:
        argv = python(KEEPS_A_LOG, tmp_path / "train.log", says, silent_s)
        into: dict[str, Any] = {"stdout": out, "stderr": out} if to_file else {}
        process = start(tmp_path / "fence", argv, settings=exact, **into)
        assert finish(process)[0] == code


@on_linux
def test_at_the_alarm_those_that_listen_dump_their_stacks_and_that_is_no_sign_of_life(tmp_path: Path) -> None:
    """The shell around the program does not listen, and would be ended by the signal."""
    more = ", dump_signal=signal.SIGUSR1"
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *python(DUMPS + WRITES + HANGS, 15, 0.05)]
    with (tmp_path / "log").open("w") as log:
        assert start(tmp_path / "fence", argv, settings=settings(more=more), stdout=log, stderr=log).wait(60) == 75
    assert "most recent call first" in (tmp_path / "log").read_text()
    (task,) = files.tasks(tmp_path / "fence")
    (seen,) = json.loads(task.hang.read_bytes())["sights"]
    assert seen["stack"][-1].startswith("<string>")


def test_a_program_that_is_stopped_does_not_hang(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    more = f", clock=set_forward({str(clock)!r})"
    process = start(tmp_path / "fence", python(BEATS, 40, 0.03), settings=settings(after=1.0, more=more))
    (task,) = wait_until(lambda: [found for found in files.tasks(tmp_path / "fence") if found.beats.exists()])
    reader = BeatReader(task.beats)
    wait_until(lambda: any((beat.step or 0) > 15 for beat in reader.news()))
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: any(is_stopped(pid) for pid in children_of(process.pid)))
    pass_time(clock, tmp_path / "fence")
    process.send_signal(signal.SIGCONT)
    assert finish(process)[0] == 0


def test_a_program_that_was_stopped_and_goes_on_is_watched_again(tmp_path: Path) -> None:
    """As before: while it stood still it was not slow."""
    clock, fence = tmp_path / "clock", tmp_path / "fence"
    more = f", clock=set_forward({str(clock)!r})"
    process = start(fence, python(BEATS + HANGS, 20, 0.03), settings=settings(after=1.0, more=more))
    (task,) = wait_until(lambda: [found for found in files.tasks(fence) if found.beats.exists()])
    reader = BeatReader(task.beats)
    wait_until(lambda: any((beat.step or 0) > 5 for beat in reader.news()))
    process.send_signal(signal.SIGTSTP)
    program = wait_until(lambda: next((pid for pid in children_of(process.pid) if is_stopped(pid)), None))
    pass_time(clock, fence)
    process.send_signal(signal.SIGCONT)
    assert program is not None
    wait_until(lambda: not is_stopped(program))
    assert finish(process)[0] == 75


@pytest.mark.parametrize("through", [["tee"], ["cat", "tee"]])
def test_output_through_tee_is_followed_to_its_file(tmp_path: Path, through: list[str]) -> None:
    """``perdure exec -- python train.py | tee train.log``."""
    with contextlib.ExitStack() as stack:
        reader, writer = os.pipe()
        process = start(
            tmp_path / "fence", python(WRITES + HANGS, 15, 0.05), settings=settings(), stdout=writer, stderr=writer
        )
        os.close(writer)
        for word in through[:-1]:
            behind, writer = os.pipe()
            stack.callback(subprocess.Popen([word], stdin=reader, stdout=writer).wait, 60)
            os.close(reader)
            os.close(writer)
            reader = behind
        tee = subprocess.Popen([through[-1], tmp_path / "log"], stdin=reader, stdout=subprocess.DEVNULL)
        os.close(reader)
        stack.callback(tee.wait, 60)
        assert process.wait(60) == 75
    assert "14\n" in (tmp_path / "log").read_text()
    assert exit_report_in(tmp_path / "fence").reason is ExitReason.HANG


LEAVES_ITS_GROUP = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
print(os.getpid(), worker.pid, flush=True)
time.sleep(3600)
"""


@on_linux
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_workers_with_sessions_of_their_own_end_with_the_program(tmp_path: Path, signum: signal.Signals) -> None:
    """As torchrun starts them: when the agent dies they would live on and hold their GPUs."""
    process = start(tmp_path, python(LEAVES_ITS_GROUP, "import time" + DEAF + HANGS))
    agent, worker = map(int, process.stdout.readline().split())
    assert is_alive(worker)
    os.kill(agent if signum == signal.SIGKILL else process.pid, signum)
    assert finish(process)[0] == 128 + signum
    assert not is_alive(worker)
