"""Ranks' own files of jobs on the embedded cluster: real jobs write as launchers do, their command lines tell where."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.local import stop_daemon
from perdure.backends.local.outputs import LocalRun, script_of
from perdure.model.actions import Requeue
from perdure.model.output import OutputKind
from tests.backends.local.test_daemon import Cluster, until

TORCHRUN = """#!/bin/sh
# Writes as torchrun does: two ranks, each with a directory of its own.
run=none_$$; shift
for rank in 0 1; do
    mkdir -p "$1/$run/attempt_0/$rank"
    echo "rank $rank of job $PERDURE_JOB_ID" > "$1/$run/attempt_0/$rank/stderr.log"
done
echo "told by the launcher"
exit 1
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:

    yield Cluster(tmp_path / "state")
    stop_daemon(tmp_path / "state")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    launcher = work / "torchrun"
    launcher.write_text(TORCHRUN)
    launcher.chmod(0o755)
    return work


def read(cluster: Cluster, job_id: str, incarnation: int = 1) -> tuple[dict[str, str], set[str]]:
    """What is read of an attempt: text by rank, and why some of it is in doubt."""
    output = cluster.backend.output(cluster.ended(job_id, incarnation))
    ranks = [file for file in output.files if file.kind is OutputKind.RANK]
    return {file.rank: file.text.decode() for file in ranks}, {file.doubt for file in ranks} - {""}


def launched(work: Path, script: str, *argv: str) -> tuple[str, ...]:
    """A command line that runs a script in one of the ways in which jobs are started."""
    (work / "job.sh").write_text(f"#!/bin/sh\n{script}\n")
    (work / "job.sh").chmod(0o755)
    return argv or ("sh", "-c", script)


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        ((), "./torchrun --log-dir logs train.py"),
        ((), "mkdir sub; cd sub\n../torchrun --log-dir ../logs/of-$SLURM_JOB_ID train.py"),
        ((), "D=$HERE/$PERDURE_INCARNATION\nexec ./torchrun --log-dir $D train.py"),
        (("bash", "-e", "job.sh", "logs"), "./torchrun --log-dir $1 train.py"),
        (("./job.sh", "logs"), './torchrun --log-dir "$1" train.py'),
        (("./torchrun", "--log-dir", "my logs", "train.py"), ""),
    ],
)
def test_what_a_launcher_writes_for_each_rank_is_read(
    cluster: Cluster, work: Path, argv: tuple[str, ...], script: str
) -> None:
    script = script.replace("../logs", f"{work}/logs")
    argv = launched(work, script, *argv)
    job = cluster.submit(*argv, workdir=str(work), env={"HERE": str(work)})
    assert read(cluster, job) == ({"0": f"rank 0 of job {job}\n", "1": f"rank 1 of job {job}\n"}, set())


def test_a_task_on_each_node_and_what_is_sent_to_a_file_are_read(cluster: Cluster, work: Path) -> None:
    script = "exec sh -c 'sleep 0.$0; echo of $0; exit $0' $RANK > out.$RANK.log"
    job = cluster.submit("sh", "-c", script, workdir=str(work), node_count=2)
    assert read(cluster, job) == ({"0": "of 0\n", "1": "of 1\n"}, set())


def test_what_stood_there_before_is_not_the_attempts(cluster: Cluster, work: Path) -> None:
    script = "eval echo before >> t.log; [ $PERDURE_INCARNATION = 1 ] || eval echo again >> t.log; exit 1"
    job = cluster.submit("sh", "-c", script.replace(";", "\n"), workdir=str(work))
    first = cluster.backend.output(cluster.ended(job))

    cluster.backend.perform(Requeue(cluster.ended(job).id))
    again = cluster.backend.output(cluster.ended(job, 2), known=[file.mark for file in first.files])
    assert [file.text for file in again.files if file.kind is OutputKind.RANK] == [b"before\nagain\n"]


def test_what_two_jobs_may_have_written_at_the_same_time_is_in_doubt(cluster: Cluster, work: Path) -> None:
    (work / "say.sh").write_text("echo mine\n")
    other = cluster.submit("sh", "-c", "eval tee log_$X.txt < /dev/null; sleep 60", workdir=str(work))
    cluster.running(other)
    until((work / "log_.txt").exists)  # it has emptied the file
    mine = cluster.submit("sh", "-c", "sh say.sh > log_$X.txt; false", workdir=str(work))
    apart = cluster.submit("sh", "-c", "sh say.sh > log_$X.log; false", workdir=str(work))
    assert read(cluster, mine) == ({"": "mine\n"}, {f"may hold lines of job {other}"})
    assert read(cluster, apart) == ({"": "mine\n"}, set())


def test_a_file_of_a_job_before_is_not_read(cluster: Cluster, work: Path) -> None:
    (work / "logs").mkdir()
    old = work / "logs" / "old.log"
    old.write_text("RuntimeError: old\n")
    os.utime(old, (time.time() - 1, time.time() - 1))
    job = cluster.submit("sh", "-c", "sleep 0.3; ./torchrun --log-dir logs train.py", workdir=str(work))
    files = cluster.backend.output(cluster.ended(job)).files
    assert len(files) == 3
    assert str(old) not in [file.path for file in files]


def test_without_a_daemon_the_log_alone_is_read(cluster: Cluster, work: Path) -> None:

    attempt = cluster.ended(cluster.submit("./torchrun", "--log-dir", "logs", workdir=str(work)))
    stop_daemon(cluster.state)
    (log,) = cluster.backend.output(attempt).files
    assert log.text == b"told by the launcher\n"


@pytest.mark.parametrize(
    ("argv", "script", "arguments"),
    [
        (("sh", "-c", "a > $0", "x"), b"a > $0", ("x",)),
        (("perdure", "exec", "--", "/bin/bash", "-euo", "pipefail", "-c", "a"), b"a", ()),
        (("bash", "-lc", "a"), b"a", ()),
        (("bash", "--norc", "-o", "pipefail", "none.sh"), b"", ("none.sh",)),
        (("sh",), b"", ()),
        (("sh", "-c"), b"", ()),
        (("python", "t.py", "> x"), b"python t.py '> x'", ("python", "t.py", "> x")),
    ],
)
def test_the_script_of_a_command_line(argv: tuple[str, ...], script: bytes, arguments: tuple[str, ...]) -> None:
    assert script_of(argv, "/w") == (script, arguments)


@given(st.lists(st.text(st.sampled_from("-co sh/.>\n\t'\\$é\udcff"), max_size=6), min_size=1, max_size=6))
def test_no_command_line_breaks_the_reading(argv: list[Any]) -> None:
    LocalRun("1", 0.0, None, tuple(argv), "/nowhere", {}).files()


@pytest.mark.skipif(sys.platform != "linux" or not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_a_script_that_is_no_file_is_not_read() -> None:
    assert script_of(("sh", "/dev/zero"), "/w") == (b"", ("/dev/zero",))
