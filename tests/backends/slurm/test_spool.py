"""Files that hooks drop."""

import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure.backends.slurm
from perdure.backends.slurm.spool import MAX_BYTES, MAX_FILES, Question, Spool, Taken, _end
from perdure.coordination.bridges.registry import read
from perdure.errors import ConfigError

HOOKS = Path(perdure.backends.slurm.__file__).parent / "hooks"
ALL = sorted(path.name for path in HOOKS.iterdir())
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
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def drop(spool: Spool, hook: str, environment: dict[str, str], *words: str, ends: tuple[int, bytes] = (0, b"")) -> None:
    path = os.environ["PATH"]
    environment = {"PATH": path, "PERDURE_SPOOL": str(spool.directory), **environment}
    done = subprocess.run([HOOKS / hook, *words], env=environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (*ends, b"")


def test_the_end_of_an_attempt_is_passed_on_and_taken_once(spool: Spool) -> None:
    assert not spool.has_news()
    drop(spool, "jobcomp", ENDED)
    assert spool.has_news()
    (end,) = spool.take().ends
    assert (end.job_id, end.state, end.start_s, end.end_s, end.nodes) == ("7", "NODE_FAIL", 100, 110, ("n1", "n2"))
    assert not spool.has_news()
    assert list(spool.directory.iterdir()) == []


def test_a_task_of_an_array_goes_by_its_own_name(spool: Spool) -> None:
    drop(spool, "jobcomp", {**ENDED, "ARRAYJOBID": "5", "ARRAYTASKID": "3"})
    assert [end.job_id for end in spool.take().ends] == ["5_3"]


def test_a_job_that_ended_and_waits_was_put_back(spool: Spool) -> None:
    """A prolog that failed: a real Slurm 22.05 calls the job PENDING then."""
    drop(spool, "jobcomp", {**ENDED, "JOBSTATE": "PENDING"})
    assert [end.state for end in spool.take().ends] == ["REQUEUED"]


def test_an_epilog_only_asks_for_a_look(spool: Spool) -> None:
    drop(spool, "epilog", {"SLURM_JOB_ID": "7"})
    taken = spool.take()
    assert (taken.ends, taken.looks, taken.ignored) == ((), 1, 0)


def test_hooks_say_nothing_without_a_spool(tmp_path: Path) -> None:
    for hook in ALL:
        drop(Spool(tmp_path / "gone"), hook, ENDED, "down", "n1")
    assert list(tmp_path.iterdir()) == []


def test_hooks_stop_where_nobody_collects(spool: Spool, failing: Path) -> None:
    for number in range(5000):
        (spool.directory / f"{number}.event").touch()
    for hook in set(ALL) - {"healthcheck"}:
        drop(spool, hook, {"SLURM_JOB_ID": "7"}, "down", "n1")
    drop(spool, "healthcheck", {"PERDURE_HEALTHCHECK": str(failing)}, ends=(3, SAID))
    assert len(list(spool.directory.iterdir())) == 5000
    assert spool.take().ignored == MAX_FILES


SAID = b"GPU 3: Xid 79, fell off the bus\nJOBID=9\\nNODE=other\n"


@pytest.fixture
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's health check that fails, with a text that would like to be more than one line."""
    site = tmp_path_factory.mktemp("site")
    (site / "said").write_bytes(SAID)
    check = site / "check"
    check.write_text(f"#!/bin/sh\ncat {site}/said\nexit 3\n")
    check.chmod(0o755)
    return check


def told(spool: Spool) -> list[Any]:
    """The exceptions that the notices in the spool tell of."""
    taken = spool.take()
    assert (taken.ends, taken.ignored) == ((), 0)
    return [read("slurm", notice, "c", 2e9).records for notice in taken.notices]


def test_a_trigger_names_the_event_and_the_nodes(spool: Spool) -> None:
    drop(spool, "strigger", {}, "down", "n[1-2]")
    assert spool.has_news()
    ((first, second),) = told(spool)
    assert (first.type, first.subject.nodes, second.subject.nodes) == ("node.down", ("n1",), ("n2",))
    assert 1.7e9 < first.time_s < 2e9
    assert not spool.has_news()


def test_a_trigger_passes_on_nothing_but_letters_and_names(spool: Spool) -> None:
    drop(spool, "strigger", {}, "down; x\nTIME=1", "n1$(id)\nEVENT=up")
    (notice,) = spool.take().notices
    assert notice.splitlines()[1:3] == ["EVENT=downx", "NODES=n1idEVENTup"]


def test_a_health_check_that_fails_is_told_of_and_passed_on(spool: Spool, failing: Path) -> None:
    drop(spool, "healthcheck", {"PERDURE_HEALTHCHECK": str(failing), "SLURMD_NODENAME": "n7"}, ends=(3, SAID))
    ((record,),) = told(spool)
    assert (record.type, record.subject.nodes) == ("node.gpu.xid79", ("n7",))
    assert record.note == r"GPU 3: Xid 79, fell off the bus JOBID=9\nNODE=other"


def test_a_health_check_that_goes_well_is_no_news(spool: Spool, tmp_path: Path) -> None:
    drop(spool, "healthcheck", {})
    drop(spool, "healthcheck", {"PERDURE_HEALTHCHECK": "/bin/true"})
    drop(spool, "healthcheck", {"PERDURE_HEALTHCHECK": str(tmp_path / "gone")})
    assert not spool.has_news()


@pytest.mark.parametrize("hook", ["prolog", "epilogctld"])
def test_a_start_and_an_end_are_reasons_to_look(spool: Spool, hook: str) -> None:
    drop(spool, hook, {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_EXIT_CODE2": "78:0"})
    assert spool.take() == Taken(looks=1)


def test_an_end_tells_its_exit_code_to_those_who_read_it(spool: Spool) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}
    drop(spool, "epilogctld", {**environment, "SLURM_JOB_EXIT_CODE2": "78:0", "SLURM_JOB_NODELIST": "n1"})
    (file,) = spool.directory.iterdir()
    (record,) = read("slurm", file.read_text(), "c", 2e9).records
    assert (record.type, record.transient.value, record.subject.job_id) == ("process.exit", "no", "5_3")


def test_what_is_no_event_is_counted_and_removed(spool: Spool, tmp_path: Path) -> None:
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


def test_a_spool_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert Spool(tmp_path / "gone").take().ignored == 0
    assert not Spool(tmp_path / "gone").has_news()


def test_a_spool_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="everybody may write"):
        Spool(tmp_path).check()
    with pytest.raises(ConfigError, match="no spool directory"):
        Spool(tmp_path / "gone").check()
    tmp_path.chmod(0o770)
    Spool(tmp_path).check()


@given(st.text(max_size=80))
def test_any_text_is_an_end_or_nothing(text: str) -> None:
    _end("perdure-event 1 end\n" + text)


FAILED = {"SLURM_JOB_ID": "7", "SLURM_JOB_EXIT_CODE2": "1:0", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.fixture
def waiting(spool: Spool) -> Iterator[subprocess.Popen[bytes]]:
    """An epilog of a failed job, which waits for an answer."""
    spool.write_alive(time.time())
    environment = {"PATH": os.environ["PATH"], "PERDURE_SPOOL": str(spool.directory), **FAILED}
    with subprocess.Popen([HOOKS / "epilogctld"], env={**environment, "PERDURE_EPILOG_WAIT_S": "300"}) as hook:
        await_(spool.has_news)
        yield hook
        hook.kill()


def await_(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_epilog_of_a_failure_waits_until_it_is_answered(spool: Spool, waiting: subprocess.Popen[bytes]) -> None:
    taken = spool.take()
    (question,) = taken.questions
    assert (question.job_id, question.nodes, taken.looks, taken.ignored) == ("7", ("n1", "n2"), 0, 0)
    assert waiting.poll() is None
    await_(lambda: spool.answer(question))
    assert waiting.wait(60) == 0
    assert [path.name for path in spool.directory.iterdir()] == ["alive"]
    assert spool.answer(question)  # nobody waits any more


@pytest.mark.parametrize(
    ("alive_s", "more"),
    [(None, {}), (-1000, {}), (0, {"SLURM_JOB_EXIT_CODE2": "0:0"}), (0, {"PERDURE_EPILOG_WAIT_S": "0"})],
)
def test_no_epilog_waits_for_a_good_end_or_where_nobody_decides(
    spool: Spool, alive_s: int | None, more: dict[str, str]
) -> None:
    if alive_s is not None:
        spool.write_alive(time.time() + alive_s)
    drop(spool, "epilogctld", {**FAILED, "PERDURE_EPILOG_WAIT_S": "300", **more})
    taken = spool.take()
    assert (taken.questions, taken.looks) == ((), 1)


def test_an_epilog_waits_no_longer_than_it_is_told(spool: Spool) -> None:
    spool.write_alive(time.time())
    begun_s = time.monotonic()
    drop(spool, "epilogctld", {**FAILED, "PERDURE_EPILOG_WAIT_S": "1"})
    assert time.monotonic() - begun_s > 0.9
    (question,) = spool.take().questions
    assert spool.answer(question)


@pytest.mark.parametrize("alive", ["", "x", "99999999999999999999999x", "$(touch /tmp/x)", "-1"])
def test_a_sign_of_life_that_makes_no_sense_is_none(spool: Spool, alive: str) -> None:
    (spool.directory / "alive").write_text(f"{alive}\n")
    drop(spool, "epilogctld", FAILED)
    assert spool.take().questions == ()


@pytest.mark.parametrize("answer", ["../x", "/etc/passwd", "7.epilogctld.1.answer/..", "7.epilogctld.1.event", "alive"])
def test_an_answer_goes_to_pipes_of_hooks_alone(spool: Spool, answer: str) -> None:
    (spool.directory / "7.event").write_text(f"perdure-event 1 ended\nJOBID=7\nNODES=n1\nANSWER={answer}\n")
    taken = spool.take()
    assert (taken.questions, taken.looks) == ((), 1)


def test_the_sign_of_life_is_there_for_hooks_of_other_users_whatever_the_umask(spool: Spool) -> None:
    before = os.umask(0o077)
    try:
        spool.write_alive(1000.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE((spool.directory / "alive").stat().st_mode) == 0o644


def test_the_sign_of_life_is_not_written_through_a_link(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (spool.directory / "alive").symlink_to(tmp_path / "precious")
    spool.write_alive(1000.0)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_link_to_a_pipe_is_not_opened(spool: Spool, tmp_path: Path) -> None:
    """Whoever may write to the spool could have the service open what it likes."""
    os.mkfifo(tmp_path / "elsewhere")  # nobody listens there: to open it would say so
    (spool.directory / "7.epilogctld.1.answer").symlink_to(tmp_path / "elsewhere")
    assert spool.answer(Question("7", (), "7.epilogctld.1.answer"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_a_stranger_dropped_is_no_word_of_the_site(spool: Spool) -> None:
    (spool.directory / "7.event").write_text("perdure-event 1 look\n")
    (spool.directory / "8.event").write_text("perdure-event 1 look\n")
    os.chown(spool.directory / "8.event", 12345, 12345)
    taken = spool.take()
    assert (taken.looks, taken.ignored) == (1, 1)


def test_what_lies_in_the_place_of_a_pipe_stays_as_it_is(spool: Spool, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    question = Question("7", (), "7.epilogctld.1.answer")
    (spool.directory / question.answer).symlink_to(precious)
    assert spool.answer(question)
    (spool.directory / question.answer).unlink()
    (spool.directory / question.answer).write_text("kept")
    assert spool.answer(question)
    assert (spool.directory / question.answer).read_text() == precious.read_text() == "kept"


def test_pipes_of_hooks_that_were_killed_are_removed(spool: Spool) -> None:
    for name, age_s in (("1.epilogctld.1.answer", 0), ("2.epilogctld.2.answer", 100)):
        os.mkfifo(spool.directory / name)
        os.utime(spool.directory / name, (1000 - age_s, 1000 - age_s))
    assert not spool.answer(Question("1", (), "1.epilogctld.1.answer"))
    spool.remove_stale_answers(1001)
    assert [path.name for path in spool.directory.iterdir()] == ["1.epilogctld.1.answer"]


def test_a_sign_of_life_is_no_news(spool: Spool) -> None:
    spool.write_alive(100)
    before = spool.changed_ns()
    spool.write_alive(1795352837)
    assert (spool.directory / "alive").read_text() == "1795352837\n"
    assert spool.changed_ns() == before
    drop(spool, "epilog", {"SLURM_JOB_ID": "7"})
    assert spool.changed_ns() != before
    spool.remove_alive()
    assert not (spool.directory / "alive").exists()
