"""The end of the allocation: who says it, and that the program hears of it in time."""

import os
import signal
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from perdure.job import files
from perdure.job.exit_report import ExitReason
from perdure.job.processes import _has_ancestor, _seen
from perdure.job.walltime import EndTime, WalltimeWatch, ask_squeue
from tests.job.launching import exit_report_in, finish, on_linux, python, start

SLURM = {"SLURM_JOB_ID": "12"}


def looked(watch: WalltimeWatch, instants: Sequence[float]) -> list[float]:
    """Those at which the program is to be told; an answer that is asked for comes before the next look."""
    told = []
    for now in instants:
        if watch.look(now):
            told.append(now)
        watch._end._asking.wait(60)
    return told


def test_it_is_told_once_in_time(tmp_path: Path) -> None:
    end = EndTime({"SLURM_JOB_END_TIME": "1000"}, tmp_path / "note")
    assert looked(WalltimeWatch(end, 120.0), range(800, 1000)) == [880]


def test_without_the_option_nobody_is_asked(tmp_path: Path) -> None:
    end = EndTime(SLURM, tmp_path / "note", ask=lambda: pytest.fail("asked"))
    assert looked(WalltimeWatch(end, None), [1e9]) == []


def test_where_slurm_does_not_set_it_the_manager_is_asked_and_asked_again_before_the_program_is_told(
    tmp_path: Path,
) -> None:
    answers = iter([1000.0, 2000.0, 2000.0, 2000.0])
    end = EndTime(SLURM, tmp_path / "note", ask=lambda: next(answers))
    watch = WalltimeWatch(end, 120.0)
    assert looked(watch, range(0, 2000, 10)) == [
        1890
    ]  # the limit was raised at 880; asked at 1880, told with the answer
    assert watch.explains(False, 1900.0)


def test_a_manager_that_does_not_answer_is_asked_once_a_minute(tmp_path: Path) -> None:
    asked = []
    end = EndTime(SLURM, tmp_path / "note", ask=lambda: asked.append(1))
    assert looked(WalltimeWatch(end, 120.0), range(600)) == []
    assert len(asked) == 10


def test_a_task_that_does_not_ask_honours_a_limit_that_was_raised(tmp_path: Path) -> None:
    """The first task asks once more before it tells its program, and writes down the answer for all."""
    note, answers = tmp_path / "note", iter([1000.0, 2000.0])
    first = EndTime(SLURM | {"SLURM_PROCID": "0"}, note, ask=lambda: next(answers))
    other = EndTime(SLURM | {"SLURM_PROCID": "1"}, note)
    looked(WalltimeWatch(first, 120.0), [0.0])
    watch = WalltimeWatch(other, 120.0)
    assert looked(watch, [1.0]) == []
    assert looked(WalltimeWatch(first, 120.0), [880.0]) == []
    assert looked(watch, [881.0, 1000.0, 1881.0]) == [1881.0]


def test_one_task_asks_for_all(tmp_path: Path) -> None:
    note = tmp_path / "note"
    first = EndTime(SLURM | {"SLURM_PROCID": "0"}, note, ask=lambda: 1000.0)
    looked(WalltimeWatch(first, 10.0), [0.0])
    other = EndTime(SLURM | {"SLURM_PROCID": "1"}, note)
    assert looked(WalltimeWatch(other, 10.0), range(1000)) == [990]


def test_the_embedded_clusters_job_numbers_are_not_asked_of_slurm(tmp_path: Path) -> None:
    assert EndTime(SLURM | {"PERDURE_JOB_ID": "12"}, tmp_path / "note")._ask is None
    assert EndTime(SLURM, tmp_path / "note")._ask is not None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("echo 2026-11-21T18:00:00", datetime(2026, 11, 21, 18).timestamp()),
        ("echo N/A", None), ("echo NONE", None), ("true", None),
        ("echo 2026-11-21T18:00:00; exit 1", None),
    ],
)  # fmt: skip
def test_what_squeue_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, expected: float | None) -> None:
    (tmp_path / "squeue").write_text(f'#!/bin/sh\n[ "$*" = "-h -j 12 -o %e" ] || exit 2\n{said}\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert ask_squeue("12") == expected


def test_a_machine_without_slurm_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_squeue("12") is None


def test_a_signal_from_outside_means_walltime_only_near_it(tmp_path: Path) -> None:
    watch = WalltimeWatch(EndTime({"SLURM_JOB_END_TIME": "1000"}, tmp_path / "note"), None)
    assert watch.explains(True, 990.0)
    assert not watch.explains(True, 600.0)
    assert not watch.explains(False, 990.0)


SAVES = """
import signal, subprocess, sys, time
def save(signum, frame):
    print("saved on", signal.Signals(signum).name, flush=True)
    sys.exit(0)
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), save)
time.sleep(60)
"""


@on_linux
@pytest.mark.parametrize(
    ("framework", "listens_to"),
    [("PLAIN", "SIGTERM"), ("LIGHTNING", "SIGUSR1,SIGTERM"), ("SUBMITIT", "SIGUSR2,SIGTERM")],
)
def test_the_program_hears_of_it_as_its_framework_expects(tmp_path: Path, framework: str, listens_to: str) -> None:
    """The shell around it has no handler, and is not ended by the signal."""
    settings = f"ExecOptions(warn_s=3600, look_s=0.3, framework=Framework.{framework})"
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *python(SAVES, listens_to)]
    ends = {"SLURM_JOB_END_TIME": str(int(time.time() + 1800))}
    code, out, err = finish(start(tmp_path, argv, settings=settings, variables=ends))
    assert (code, out) == (0, f"saved on {listens_to.split(',')[0]}\n")
    report = exit_report_in(tmp_path)
    assert report.reason is ExitReason.WALLTIME
    assert report.walltime_end_s is not None
    assert report.warned_s is not None
    assert report.walltime_end_s - report.warned_s == pytest.approx(1800, abs=60)
    assert "walltime ends in" in err


AGENT = """
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True)
def end(signum, frame):
    print("agent:", signal.Signals(signum).name, flush=True)
    worker.terminate()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
sys.exit(worker.wait())
"""


@on_linux
@pytest.mark.parametrize(
    ("sent", "listens_to", "expected"),
    [
        ("USR1", "SIGTERM", (0, ["saved on SIGTERM"])),
        ("USR1", "SIGUSR1", (0, ["saved on SIGUSR1"])),
        ("USR1", "SIGUSR2", (256 - signal.SIGTERM, ["agent: SIGTERM"])),
        ("USR2", "SIGTERM", (0, ["saved on SIGTERM"])),
    ],
    ids=["workers-listen-to-term", "workers-listen", "nobody-listens", "the-other-signal"],
)
def test_slurms_own_signal_does_not_end_torchruns_agent(
    tmp_path: Path, sent: str, listens_to: str, expected: tuple[int, list[str]]
) -> None:
    """USR1 has no handler in the agent: it would die of it, and its workers would not hear of it."""
    settings = "ExecOptions(framework=Framework.TORCHRUN, poll_s=0.02)"
    process = start(
        tmp_path,
        python(AGENT, SAVES.replace("time.sleep", "print('ready', flush=True); time.sleep"), listens_to),
        settings=settings,
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "ready\n"]
    process.send_signal(signal.Signals[f"SIG{sent}"])
    code, out, _ = finish(process)
    assert (code, out.splitlines()) == expected
    assert exit_report_in(tmp_path).told == (sent,)


@on_linux
def test_what_a_worker_asks_for_once_it_is_told_goes_through_torchrun(tmp_path: Path) -> None:
    """Its agent ends with 1 whatever the worker ended with."""
    agent = AGENT.replace("sys.exit(worker.wait())", "worker.wait(); sys.exit(1)")
    worker = SAVES.replace("sys.exit(0)", "from perdure.job import leave; leave(75, 'saved')")
    settings = "ExecOptions(warn_s=3600, look_s=0.3, framework=Framework.TORCHRUN)"
    ends = {"SLURM_JOB_END_TIME": str(int(time.time() + 1800))}
    code, _, _ = finish(start(tmp_path, python(agent, worker, "SIGTERM"), settings=settings, variables=ends))
    assert (code, exit_report_in(tmp_path).reason) == (75, ExitReason.WALLTIME)


@on_linux
@pytest.mark.parametrize("listens_to", ["SIGTERM", "SIGUSR1"])
def test_a_warning_to_every_process_of_a_step_does_not_end_torchruns_agent(tmp_path: Path, listens_to: str) -> None:
    """As Slurm sends it; workers that listen to TERM alone are told that."""
    save = SAVES.replace("time.sleep", "print('ready', flush=True); time.sleep")
    settings = "ExecOptions(framework=Framework.TORCHRUN, poll_s=0.02)"
    process = start(tmp_path, python(AGENT, save, listens_to), settings=settings)
    assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "ready\n"]
    seen = _seen()
    family = [pid for pid in seen if pid == process.pid or _has_ancestor(seen[pid].parent, {process.pid}, seen)]
    for pid in family:
        os.kill(pid, signal.SIGUSR1)
    code, out, _ = finish(process)
    assert (code, out) == (0, f"saved on {listens_to}\n")


@on_linux
def test_a_worker_below_an_agent_that_does_not_listen_is_told_at_once(tmp_path: Path) -> None:
    """As ``accelerate launch`` starts a single one."""
    settings = "ExecOptions(warn_s=3600, look_s=0.1, framework=Framework.TORCHRUN)"
    ends = {"SLURM_JOB_END_TIME": str(int(time.time() + 1800))}
    agent = AGENT.replace("signal.signal(", "str((").replace("end)\nprint", "end))\nprint")
    code, out, _ = finish(start(tmp_path, python(agent, SAVES, "SIGTERM"), settings=settings, variables=ends))
    assert (code, out.splitlines()[1:]) == (0, ["saved on SIGTERM"])


@on_linux
@pytest.mark.parametrize(
    ("left_s", "expected"),
    [(1800, (0, ["saved on SIGTERM"])), (600, (256 - signal.SIGTERM, ["agent: SIGTERM"]))],
    ids=["there-is-time", "there-is-none"],
)
def test_workers_that_start_late_are_waited_for_while_there_is_time(
    tmp_path: Path, left_s: int, expected: tuple[int, list[str]]
) -> None:
    """The agent would end them. It is told when a third is left of the time that they were to have."""
    settings = "ExecOptions(warn_s=3600, look_s=0.1, framework=Framework.TORCHRUN)"
    ends = {"SLURM_JOB_END_TIME": str(int(time.time() + left_s))}
    late = SAVES.replace("def save", "time.sleep(2)\ndef save")
    code, out, err = finish(start(tmp_path, python(AGENT, late, "SIGTERM"), settings=settings, variables=ends))
    assert (code, out.splitlines()[1:]) == expected
    assert "SIGTERM sent to 1 of its processes" in err


def test_an_end_that_nobody_listens_for_is_told_in_the_log(tmp_path: Path) -> None:
    ends = {"SLURM_JOB_END_TIME": str(int(time.time()))}
    settings = "ExecOptions(warn_s=60, look_s=0.02, warn_signal=signal.SIGUSR2)"
    process = start(tmp_path, python("import sys; sys.stdin.read()"), settings=settings, variables=ends)
    assert "no process of the program listens to SIGUSR2" in process.stderr.readline()
    assert finish(process)[0] == 0
    assert not list(next(files.tasks(tmp_path)).beats.iterdir())


WAITS = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
wait = lambda: print("heard", signal.sigwait([signal.SIGUSR1]).name, flush=True)
thread = threading.Thread(target=wait)
thread.start()
thread.join()
"""


@on_linux
def test_one_whose_thread_waits_for_the_signal_listens_too(tmp_path: Path) -> None:
    """As srun does, which hands it on to its tasks."""
    ends = {"SLURM_JOB_END_TIME": str(int(time.time()))}
    settings = "ExecOptions(warn_s=60, look_s=0.02, warn_signal=signal.SIGUSR1)"
    assert finish(start(tmp_path, python(WAITS), settings=settings, variables=ends))[:2] == (0, "heard SIGUSR1\n")
