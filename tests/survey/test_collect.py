"""Failed attempts out of accounting and logs: whose log is whose, what retries made of them, nothing counted twice."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.jobs import Attempt
from perdure.survey.collect import Collected, jobs_named, of_accounting, of_logs
from perdure.traces.sacct_columns import Records
from perdure.traces.source import open_source
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict

HEADER = "JobID|User|Account|Partition|Submit|Start|ElapsedRaw|TimelimitRaw|State|ExitCode|NNodes|AllocTRES|ReqTRES"
CAUSE = Evidence(1, "boom", CauseRole.ROOT, "rule")
NAMED = Verdict(Label.DETERMINISTIC, 0.1, "shape", "a shape bug", (CAUSE,))
UNNAMED = Verdict(Label.UNSURE, 0.5, "unknown", "something failed", ())

Collect = Callable[..., Collected]
ids = st.integers(1, 10**6).map(str)


def record(
    job_id: str, start: int, elapsed: int, state: str, code: str = "1:0", user: str = "ada", gpus: int = 4
) -> str:
    """A line of sacct: an attempt that began at minute `start` of a day."""
    at = f"2026-11-25T{start // 60:02d}:{start % 60:02d}:00"
    tres = f"cpu=8,gres/gpu={gpus}"
    return f"{job_id}|{user}|lab|gpu|2026-11-25T00:00:00|{at}|{elapsed}|60|{state}|{code}|1|{tres}|{tres}"


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    """What is collected of lines of sacct and of logs by their names; a log named "plain" tells nothing."""

    def collected(
        lines: Sequence[str], logs: Sequence[str] = (), asked: list[tuple[str | None, str]] | None = None
    ) -> Collected:
        def judge(log: str | None, attempt: Attempt | None) -> Verdict:
            if asked is not None:
                asked.append((log, attempt.state.value))
            return UNNAMED if log is None or "plain" in log else NAMED

        path = tmp_path / "sacct.txt"
        path.write_text("\n".join([HEADER, *lines]) + "\n")
        return of_accounting(Records.of(open_source(path)), logs, judge)

    return collected


def test_a_job_that_failed_and_then_passed_is_one_retry_that_was_saved(collect: Collect) -> None:
    found = collect([record("7", 1, 600, "NODE_FAIL"), record("7", 30, 900, "COMPLETED", "0:0")])
    (failed,) = found.failed
    assert (found.attempts, failed.job_id, failed.user, failed.gpus, failed.ran_s) == (2, "7", "ada", 4, 600.0)
    assert (failed.retried, failed.passed_later, failed.retry_s) == (True, True, 900.0)


def test_attempts_come_in_the_order_of_their_starts_whatever_the_order_of_the_lines(collect: Collect) -> None:
    lines = [record("7", 90, 50, "FAILED"), record("7", 1, 600, "FAILED"), record("7", 30, 70, "FAILED")]
    found = collect(lines)
    assert [(each.ran_s, each.retried, each.retry_s) for each in found.failed] == [
        (600.0, True, 70.0),
        (70.0, True, 50.0),
        (50.0, False, 0.0),
    ]


def test_a_log_belongs_to_the_last_attempt_of_its_job_that_failed(collect: Collect) -> None:
    asked = []
    lines = [record("7", 1, 60, "FAILED"), record("7", 9, 60, "TIMEOUT"), record("7", 19, 60, "COMPLETED", "0:0")]
    found = collect(lines, ["slurm-7.out", "slurm-8.out"], asked)
    assert asked == [(None, "failed"), ("slurm-7.out", "timeout")]
    assert (found.logs, found.strangers) == (1, 1)
    assert [each.reason for each in found.failed] == ["unknown", "shape"]


def test_of_two_logs_of_an_attempt_the_one_that_names_a_cause_counts(collect: Collect) -> None:
    found = collect([record("7", 1, 60, "FAILED")], ["plain-7.out", "slurm-7.err"])
    assert ([each.reason for each in found.failed], found.logs) == (["shape"], 2)


@pytest.mark.parametrize(("code", "failed", "put_back"), [("0:0", 0, 1), ("1:0", 1, 0), ("0:9", 1, 0)])
def test_of_what_was_put_back_only_an_exit_code_tells_how_it_ended(
    collect: Collect, code: str, failed: int, put_back: int
) -> None:
    found = collect([record("7", 1, 60, "REQUEUED", code)])
    assert (len(found.failed), found.put_back, found.attempts) == (failed, put_back, 1)


def test_steps_are_no_attempts(collect: Collect) -> None:
    found = collect([record("7", 1, 60, "FAILED"), record("7.0", 1, 60, "FAILED"), record("7.batch", 1, 60, "FAILED")])
    assert (found.attempts, len(found.failed)) == (1, 1)


@given(st.lists(ids, max_size=6, unique=True), st.lists(ids, max_size=8))
def test_each_log_is_of_one_known_job_at_the_most_and_bears_its_id(known: list[str], numbers: list[str]) -> None:
    logs = [f"/logs/run-{number}-{i}.out" for i, number in enumerate(numbers)]
    named = jobs_named(known, logs)
    placed = [log for its in named.values() for log in its]
    assert len(set(placed)) == len(placed)
    assert all(job in known and job in log for job, its in named.items() for log in its)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 999))
def test_of_ids_in_one_name_the_last_that_is_known_counts(first: int, last: int, task: int) -> None:
    log = f"/of-5/job-{first}-{last}_{task}.log"
    assert jobs_named([str(first), str(last), f"{last}_{task}", "5"], [log]) == {f"{last}_{task}": [log]}
    assert jobs_named([str(last)], [log]) == {str(last): [log]}
    assert jobs_named(["5"], ["/of-5/x.log"]) == {}  # a directory's name is no job's


@given(st.lists(st.booleans(), max_size=10))
def test_logs_alone_are_failures_where_they_show_one(shown: list[bool]) -> None:
    logs = [f"slurm-{100 + i}.out" if shows else f"plain-{100 + i}.out" for i, shows in enumerate(shown)]
    found = of_logs(logs, lambda log: f"owner of {log}", lambda log, _: UNNAMED if "plain" in str(log) else NAMED)
    assert (found.logs, found.strangers, found.attempts) == (len(shown), shown.count(False), shown.count(True))
    assert [each.job_id for each in found.failed] == [str(100 + i) for i, shows in enumerate(shown) if shows]
    assert all(each.user == f"owner of slurm-{each.job_id}.out" and each.ran_s is None for each in found.failed)
