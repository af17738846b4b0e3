"""``perdure exec`` in a real job: it learns from Slurm when the allocation ends, and on which node it is."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.job import exit_report, files
from perdure.job.exit_report import ExitReason
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

SAVES = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
time.sleep(120)
"""


def test_the_program_is_told_before_walltime(quiet_cluster: SlurmCluster) -> None:
    """Slurm 22.05 sets no SLURM_JOB_END_TIME: squeue is asked. The shell of the job does not listen."""
    fence = quiet_cluster.output / "fence"
    program = quiet_cluster.output / "saves.py"
    program.write_text(SAVES)
    launcher = f"{sys.executable} -m perdure exec --signal-before 80:USR1 --"  # a busy machine is slow to start it
    script = f"export PERDURE_FENCE_DIR={fence}\n{launcher} srun {sys.executable} {program}\n"
    job = quiet_cluster.submit(script, "--time=2", "-w", "node2")
    ended = quiet_cluster.wait(job, lambda record: record["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), 180)
    assert ended["JobState"] == "COMPLETED"
    (task,) = files.tasks(fence)
    report = exit_report.read(task.exit_report)
    assert (report.reason, report.exit_code, report.job_id, report.node) == (ExitReason.WALLTIME, 0, job, "node2")
    started_s = time.mktime(time.strptime(ended["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    assert report.walltime_end_s is not None
    assert report.warned_s is not None
    assert report.walltime_end_s - started_s == pytest.approx(120, abs=30)
    assert report.walltime_end_s - 80 <= report.warned_s < report.walltime_end_s


def test_steps_and_commands_of_one_start_do_not_fence_each_other(quiet_cluster: SlurmCluster) -> None:
    """Slurm 22.05 names no start in their environment; on two nodes, side by side and one after the other."""
    fence, begun_s = quiet_cluster.output / "fence-of-steps", time.time()
    launcher = f"{sys.executable} -m perdure exec -- sleep"
    script = (
        f"export PERDURE_FENCE_DIR={fence}\n"
        f"{launcher} 4 & a=$!\n"
        f"srun -n1 -N1 --exact {launcher} 4 & b=$!\n"
        f"srun -n1 -N1 --exact --relative=1 {launcher} 4 & c=$!\n"
        "wait $a; a=$?; wait $b; b=$?; wait $c; c=$?\n"
        f"srun -N2 -n2 {launcher} 0; d=$?\n"
        f"{launcher} 0\n"
        "echo codes $a $b $c $d $?\n"
    )
    job = quiet_cluster.submit(script, "-N2", "--ntasks-per-node=2", f"--output={quiet_cluster.output}/steps.log")
    quiet_cluster.wait(job, lambda record: record["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), 180)
    assert "codes 0 0 0 0 0" in (quiet_cluster.output / "steps.log").read_text()
    assert {exit_report.read(task.exit_report).token for task in files.tasks(fence)} == {1}
    assert json.loads((fence / "claims" / "1").read_text())["start_s"] >= begun_s - 1


COUNTS = """
import signal, sys, time
got = open(sys.argv[1], "a", buffering=1)
for name in ("USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, f"SIG{name}"), lambda signum, _: got.write(signal.Signals(signum).name + "\\n"))
got.write("ready\\n")
while True:
    time.sleep(0.1)
"""
# The launcher, and more patience with Slurm's signals: a busy machine spreads what it sends to the processes of a step.
PATIENT = """
import runpy, sys
from perdure.job import signals
signals.WITNESS_S = 5.0
sys.argv[0] = "perdure"
runpy.run_module("perdure", run_name="__main__")
"""
SETTLED_S = 6.5  # a second copy comes within milliseconds, one that is handed on within WITNESS_S
TRAP = "{launcher} & pid=$!\ntrap 'kill -USR1 $pid' USR1\nwhile kill -0 $pid; do wait $pid; done"
ONCE = {  # name: batch script, options of sbatch, how a person sends the signal
    "to the step": ("srun {launcher}", [], ["scancel", "--signal=USR1"]),
    "to batch script and steps": ("trap : USR1\nsrun {launcher}", [], ["scancel", "--full", "--signal=USR1"]),
    "to all of the batch script": ("exec {launcher}", [], ["scancel", "--full", "--signal=USR1"]),
    "to the batch script alone": ("exec {launcher}", [], ["scancel", "--batch", "--signal=USR1"]),
    "by a trap": (TRAP, [], ["scancel", "--batch", "--signal=USR1"]),
    "by srun below": ("{around}", [], ["scancel", "--signal=USR1"]),
}
AT_WALLTIME = {
    "warned": ("srun {%s}", ["--time=1", "--signal=USR1@60"], None),
    "warned by its script": (TRAP.replace("launcher", "%s"), ["--time=1", "--signal=B:USR1@60"], None),
    "not warned": ("srun {%s}", ["--time=1"], None),
}


def _starts(
    cluster: SlurmCluster, table: Mapping[str, tuple[str, list[str], Any]]
) -> tuple[dict[str, str], dict[str, Path]]:
    """Submit these jobs; returns their ids and the files in which their programs note what comes, by name."""
    program, patient = cluster.output / "counts.py", cluster.output / "patient.py"
    program.write_text(COUNTS)
    patient.write_text(PATIENT)
    jobs, notes = {}, {}
    for name, (script, options, _) in table.items():
        notes[name] = cluster.output / f"{name.replace(' ', '-')}.got"
        command = f"{sys.executable} {program} {notes[name]}"
        launcher = f"{sys.executable} {patient} exec -- "
        texts = {"launcher": launcher + command, "around": f"{launcher}srun {command}", "bare": command}
        fence = f"export PERDURE_FENCE_DIR={notes[name]}.fence\n"
        jobs[name] = cluster.submit(fence + script.format(**texts), *options)
    await_("all programs listen", lambda: all(map(_got, notes.values())), 180)
    return jobs, notes


def _got(notes: Path) -> Sequence[str]:
    return notes.read_text().split() if notes.exists() else []


def test_each_signal_of_slurm_reaches_the_program_once(quiet_cluster: SlurmCluster) -> None:
    """Slurm signals every process of a step, or a batch script alone: a signal comes neither twice nor not at all."""
    jobs, notes = _starts(quiet_cluster, ONCE)
    for name, (_, _, command) in ONCE.items():
        quiet_cluster.run(*command, jobs[name])
    await_("all have it", lambda: all(len(_got(path)) > 1 for path in notes.values()), 120)
    time.sleep(SETTLED_S)
    assert {name: _got(path) for name, path in notes.items()} == {name: ["ready", "SIGUSR1"] for name in ONCE}


@pytest.mark.slow
def test_signals_around_the_walltime_are_those_that_come_without_a_launcher(quiet_cluster: SlurmCluster) -> None:
    """Slurm itself sends TERM at the end of the walltime, and once more before it kills."""
    table = {
        f"{name}, {how}": (script % how, options, by)
        for name, (script, options, by) in AT_WALLTIME.items()
        for how in ("launcher", "bare")
    }
    jobs, notes = _starts(quiet_cluster, table)
    for job in jobs.values():
        quiet_cluster.wait(job, lambda record: record["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), 240)
    for name in AT_WALLTIME:
        got, expected = _got(notes[f"{name}, launcher"]), _got(notes[f"{name}, bare"])
        assert got == expected, name
        assert ("SIGUSR1" in got) is name.startswith("warned")
