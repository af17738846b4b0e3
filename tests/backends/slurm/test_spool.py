"""Files that hooks drop."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure.backends.slurm
from perdure.backends.slurm.spool import MAX_BYTES, MAX_FILES, Spool, _end
from perdure.errors import ConfigError

HOOKS = Path(perdure.backends.slurm.__file__).parent / "hooks"
ENDED = {
    "JOBID": "7",
    "ARRAYJOBID": "0",
    "ARRAYTASKID": "4294967294",
    "UID": "1000",
    "USERNAME": "ada",
    "JOBSTATE": "NODE_FAIL",
    "EXITCODE": "0:0",
    "SUBMIT": "90",
    "START": "100",
    "END": "110",
    "NODES": "n[1-2]",
    "JOBNAME": "x\nJOBSTATE=COMPLETED",
}


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path)


def drop(spool, hook, environment):
    path = os.environ["PATH"]
    done = subprocess.run(
        [HOOKS / hook], env={"PATH": path, "PERDURE_SPOOL": str(spool.directory), **environment}, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_end_of_an_attempt_is_passed_on_and_taken_once(spool):
    assert not spool.has_news()
    drop(spool, "jobcomp", ENDED)
    assert spool.has_news()
    (end,) = spool.take().ends
    assert (end.job_id, end.state, end.start_s, end.end_s, end.nodes) == ("7", "NODE_FAIL", 100, 110, ("n1", "n2"))
    assert not spool.has_news()
    assert list(spool.directory.iterdir()) == []


def test_a_task_of_an_array_goes_by_its_own_name(spool):
    drop(spool, "jobcomp", {**ENDED, "ARRAYJOBID": "5", "ARRAYTASKID": "3"})
    assert [end.job_id for end in spool.take().ends] == ["5_3"]


def test_an_epilog_only_asks_for_a_look(spool):
    drop(spool, "epilog", {"SLURM_JOB_ID": "7"})
    taken = spool.take()
    assert (taken.ends, taken.looks, taken.ignored) == ((), 1, 0)


def test_hooks_say_nothing_without_a_spool(tmp_path):
    for hook in ("jobcomp", "epilog"):
        drop(Spool(tmp_path / "gone"), hook, ENDED)
    assert list(tmp_path.iterdir()) == []


def test_hooks_stop_where_nobody_collects(spool):
    for number in range(5000):
        (spool.directory / f"{number}.event").touch()
    drop(spool, "epilog", {"SLURM_JOB_ID": "7"})
    assert len(list(spool.directory.iterdir())) == 5000
    assert spool.take().ignored == MAX_FILES


def test_what_is_no_event_is_counted_and_removed(spool, tmp_path):
    directory = spool.directory
    (directory / "half.event").write_text("perdure-event 1 end\nJOBID=7\nSTA")
    (directory / "long.event").write_text("perdure-event 1 look\n" + "x" * MAX_BYTES)
    (directory / "bytes.event").write_bytes(bytes(range(256)))
    secret = tmp_path.parent / f"{tmp_path.name}-secret"
    secret.write_text("perdure-event 1 look\n")
    (directory / "link.event").symlink_to(secret)
    os.mkfifo(directory / "fifo.event")
    (directory / ".unfinished.tmp").write_text("perdure-event 1 look\n")
    taken = spool.take()
    assert (taken.ends, taken.looks, taken.ignored) == ((), 0, 5)
    assert [entry.name for entry in directory.iterdir()] == [".unfinished.tmp"]
    assert secret.exists()


def test_a_spool_that_is_gone_is_empty(tmp_path):
    assert Spool(tmp_path / "gone").take().ignored == 0
    assert not Spool(tmp_path / "gone").has_news()


def test_a_spool_that_everybody_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="everybody may write"):
        Spool(tmp_path).check()
    with pytest.raises(ConfigError, match="no spool directory"):
        Spool(tmp_path / "gone").check()
    tmp_path.chmod(0o770)
    Spool(tmp_path).check()


@given(st.text(max_size=80))
def test_any_text_is_an_end_or_nothing(text):
    _end("perdure-event 1 end\n" + text)
