"""However a program ends, its exit report says how and why."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.job import exit_report, files, heartbeat
from perdure.job.exit_report import ExitReason, ExitReport
from perdure.job.fence import claim
from perdure.job.identity import FENCE_JOB
from perdure.job.leave import LEAVE_FILE, RECENT_S, code_left, leave
from perdure.job.leave import SCHEMA as LEAVE_SCHEMA
from perdure.job.memory import oom_kills
from perdure.model.exits import ExitRequest
from tests.job.launching import exit_report_in, finish, on_linux, python, start, wait_until

WHOLE = ExitReport(
    "7", 1, 3, "n7", "host", 4711, ExitReason.SIGNAL, 137, 10.0, 20.5, "python", 9, ("TERM",), ExitRequest.NONE, 5, 1,
    "0", 1200, 2.5, 15.0, 99.0, "a note", False, {"message": {"message": "ValueError"}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reason", "exit_code", "signum", "wish"),
    [
        ("pass", ExitReason.EXIT, 0, 0, ExitRequest.NONE),
        ("raise SystemExit(5)", ExitReason.EXIT, 5, 0, ExitRequest.NONE),
        ("raise SystemExit(75)", ExitReason.EXIT, 75, 0, ExitRequest.RETRY),
        ("raise SystemExit(78)", ExitReason.EXIT, 78, 0, ExitRequest.NEVER),
        ("raise SystemExit(93)", ExitReason.EXIT, 93, 0, ExitRequest.STOP),
        ("import os; os.kill(os.getpid(), 11)", ExitReason.SIGNAL, 139, 11, ExitRequest.NONE),
    ],
)
def test_the_code_goes_through_and_stands_in_the_report(
    tmp_path: Path, code: str, reason: ExitReason, exit_code: int, signum: int, wish: ExitRequest
) -> None:
    ranks = {"RANK": "5", "LOCAL_RANK": "1", "SLURMD_NODENAME": "n7"}
    assert finish(start(tmp_path, python(code), variables=ranks))[0] == exit_code
    report = exit_report_in(tmp_path)
    assert (report.reason, report.exit_code, report.signal, report.wish) == (reason, exit_code, signum, wish)
    assert (report.job_id, report.incarnation, report.token) == ("7", 1, 1)
    assert (report.rank, report.local_rank, report.node) == (5, 1, "n7")
    assert report.started_s <= report.ended_s


BEATS_AND_WAITS = "import time; from perdure.job import beat; beat(41); print('ready', flush=True); time.sleep(60)"


@on_linux
def test_a_program_that_is_killed_has_its_last_step_in_the_report(tmp_path: Path) -> None:
    process = start(tmp_path, python("import os; print(os.getpid(), flush=True);" + BEATS_AND_WAITS))
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "ready\n"
    os.kill(pid, signal.SIGKILL)
    assert finish(process)[0] == 137
    report = exit_report_in(tmp_path)
    assert (report.reason, report.signal, report.step, report.told) == (ExitReason.SIGNAL, 9, 41, ())


def test_a_signal_from_outside_is_told_from_one_of_its_own(tmp_path: Path) -> None:
    process = start(tmp_path, python(BEATS_AND_WAITS))
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    assert exit_report_in(tmp_path).told == ("TERM",)


def test_when_it_is_told_to_end_a_first_version_is_written(tmp_path: Path) -> None:
    """Slurm kills the launcher with its program some seconds after TERM."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    process = start(tmp_path, python(deaf + BEATS_AND_WAITS))
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    (task,) = files.tasks(tmp_path)
    report = wait_until(lambda: task.exit_report.exists() and exit_report.read(task.exit_report))
    process.kill()
    process.communicate()
    assert (report.reason, report.signal, report.step, report.told) == (ExitReason.SIGNAL, 15, 41, ("TERM",))
    assert not report.is_final


def test_a_fenced_program_leaves_its_exit_report_too(tmp_path: Path) -> None:
    process = start(tmp_path, python(BEATS_AND_WAITS))
    process.stdout.readline()
    claim(tmp_path, "7", 2)
    assert finish(process)[0] == 93
    report = exit_report_in(tmp_path)
    assert (report.reason, report.wish, report.token) == (ExitReason.FENCED, ExitRequest.STOP, 1)
    assert "token 1 is fenced by token 2" in report.note


def test_a_program_that_is_not_there_is_reported(tmp_path: Path) -> None:
    assert finish(start(tmp_path, ["no-such-program"]))[0] == 127
    assert "no-such-program: cannot be run" in exit_report_in(tmp_path).note


def test_each_rank_of_each_incarnation_has_its_own(tmp_path: Path) -> None:
    for incarnation in (1, 2):
        ranks = [start(tmp_path, python("pass"), incarnation, variables={"RANK": str(rank)}) for rank in range(3)]
        assert [finish(rank)[0] for rank in ranks] == [0, 0, 0]
    reports = [exit_report.read(task.exit_report) for task in files.tasks(tmp_path)]
    found = sorted((report.incarnation, report.rank) for report in reports)
    assert found == [(incarnation, rank) for incarnation in (1, 2) for rank in range(3)]


def test_tracks_of_attempts_long_over_are_taken_away(tmp_path: Path) -> None:
    old, kept = tmp_path / "attempts" / "1", tmp_path / "attempts" / "2"
    for path in (old, kept):
        (path / "host-1").mkdir(parents=True)
    files.JobFiles(tmp_path / "attempts" / "17" / "host-2").make()
    assert (old.exists(), kept.exists()) == (False, True)


LEAVES = "from perdure.job import leave; leave(78, 'no such tokenizer')"


def test_what_a_worker_asks_for_goes_through_torchrun(tmp_path: Path) -> None:
    """The agent here does as torchrun's: it ends with 1, and hands the worker's error file on with its code."""
    agent = (
        "import json, os, subprocess, sys\n"
        "ours = os.environ['TORCHELASTIC_ERROR_FILE']\n"
        "theirs = ours + '.worker'\n"
        "environment = {**os.environ, 'TORCHELASTIC_ERROR_FILE': theirs}\n"
        "done = subprocess.run([sys.executable, '-c', sys.argv[1]], env=environment)\n"
        "error = json.load(open(theirs))\n"
        "error['message']['errorCode'] = done.returncode\n"
        "json.dump(error, open(ours, 'w'))\n"
        "sys.exit(1)"
    )
    code = finish(start(tmp_path, python(agent, LEAVES), settings="ExecOptions(framework=Framework.TORCHRUN)"))[0]
    report = exit_report_in(tmp_path)
    assert (code, report.exit_code, report.wish) == (78, 78, ExitRequest.NEVER)
    assert report.error["message"]["message"] == "no such tokenizer"


@pytest.mark.parametrize(("job_id", "code"), [("7", 78), ("8", 0)])
def test_how_a_program_of_another_job_leaves_says_nothing_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_id: str, code: int
) -> None:
    """Who submits a job from within one hands the environment on, and with it the way to the file."""
    path = tmp_path / "leave"
    for variable, value in ((LEAVE_FILE, str(path)), (FENCE_JOB, "7"), ("PERDURE_JOB_ID", job_id)):
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(SystemExit):
        leave(78, "no such tokenizer")
    assert code_left(path, time.time()) == code


def test_who_runs_on_after_a_word_on_its_end_has_changed_its_mind(tmp_path: Path) -> None:
    path = tmp_path / "leave"
    files.write_json(path, {"schema": LEAVE_SCHEMA, "exit_code": 78, "time_s": 1000.0, "why": ""})
    assert [code_left(path, 1000.0 + after_s) for after_s in (0.0, RECENT_S - 1.0, RECENT_S)] == [78, 78, 0]


def test_an_error_file_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    code = "import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('[' + '1,' * 20_000 + '1]')"
    finish(start(tmp_path, python(code)))
    assert exit_report_in(tmp_path).error is None


def test_an_error_file_of_an_earlier_attempt_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text('{"message": {"errorCode": 75}}')
    assert exit_report.torchelastic_error(path, path.stat().st_mtime) == {"message": {"errorCode": 75}}
    assert exit_report.torchelastic_error(path, path.stat().st_mtime + 60) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    exit_report.write(tmp_path / "one", WHOLE)
    assert exit_report.read(tmp_path / "one") == WHOLE


def test_a_report_stays_small_whatever_the_error(tmp_path: Path) -> None:
    exit_report.write(tmp_path / "one", ExitReport(**{**fields(WHOLE), "error": "x" * 10**6}))
    assert exit_report.read(tmp_path / "one").error is None
    assert (tmp_path / "one").stat().st_size < files.MAX_BYTES


def fields(report: ExitReport) -> dict[Any, Any]:
    return {name: getattr(report, name) for name in report.__slots__}


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3)


@example(name="ended_s", value=10**400, more={})
@example(name="exit_code", value=10**400, more={})
@example(name="note", value="\ud800", more={})
@given(name=st.sampled_from(sorted(WHOLE.__slots__)), value=JSON, more=st.dictionaries(st.text(), JSON, max_size=3))
def test_whatever_a_job_writes_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: list[Any] | float | str | None, more: dict[Any, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "report"
    exit_report.write(path, WHOLE)
    path.write_text(json.dumps({**more, **json.loads(path.read_bytes()), name: value}))
    with suppress(InputError):
        json.dumps(fields(exit_report.read(path)), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "what", ["{", "[" * 100_000, "[]", '{"schema": "perdure.last-breath/2"}', "x" * 70_000, "\xff"]
)
def test_what_is_no_exit_report_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "report"
    path.write_bytes(what.encode("latin-1"))
    with pytest.raises(InputError, match="report"):
        exit_report.read(path)


def test_no_link_and_no_pipe_is_followed(tmp_path: Path) -> None:
    exit_report.write(tmp_path / "one", WHOLE)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a link"):
        exit_report.read(tmp_path / "link")
    with pytest.raises(InputError, match="not a regular file"):
        exit_report.read(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("membership", "counter", "text"),
    [
        ("0::/job/step", "job/step/memory.events", "low 0\noom 4\noom_kill 3\n"),
        ("4:memory:/job\n1:cpu:/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_kernels_count_of_kills_is_read(tmp_path: Path, membership: str, counter: str, text: str) -> None:
    (tmp_path / "cgroup").write_text(membership)
    assert oom_kills(tmp_path / "cgroup", tmp_path) == 0
    path = tmp_path / counter
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert oom_kills(tmp_path / "cgroup", tmp_path) == 3


def test_the_heartbeat_of_the_launcher_goes_on_and_ends(tmp_path: Path) -> None:
    settings = "ExecOptions(heartbeat_s=0.02, look_s=0.02, poll_s=0.02)"
    with (tmp_path / "log").open("w") as log:
        process = start(tmp_path, python(BEATS_AND_WAITS), settings=settings, stdout=log)
    wait_until((tmp_path / "log").read_text)
    (task,) = files.tasks(tmp_path)
    wait_until(task.heartbeat.exists)
    seen = wait_until(lambda: (found := heartbeat.read(task.heartbeat)).count > 3 and found.step == 41 and found)
    assert (seen.job_id, seen.token, seen.is_over, seen.source) == ("7", 1, False, heartbeat.HeartbeatSource.JOB)
    later = wait_until(lambda: (found := heartbeat.read(task.heartbeat)).count > seen.count + 1 and found)
    assert later.log_silent_s is not None
    assert seen.log_silent_s is not None
    assert later.log_silent_s > seen.log_silent_s >= 0
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert heartbeat.read(task.heartbeat).is_over
