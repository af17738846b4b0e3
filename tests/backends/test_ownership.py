"""Whose the lines of a file are: an attempt is judged by those alone that are surely its own."""

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.ownership import LATE_S, OLD_S, Span, with_owner
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import OutputFile, OutputKind
from tests.copying import replace

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def attempt(start: float = 0.0, end: float | None = 100.0, job: str = "17", path: str = "/o/x") -> Attempt:
    ended = None if end is None else NOW + end
    return Attempt(AttemptId("c", job, int(start)), AttemptState.FAILED, ("n1",), NOW + start, ended, stdout=path)


def log(text: bytes = b"RuntimeError: shapes\n", written: float = 99.0, **more: Any) -> OutputFile:
    return OutputFile("/o/x", text, end=len(text), written_s=NOW + written, **more)


def span(start: float, end: float, job: str = "18") -> Span:
    return Span(job, NOW + start, NOW + end)


def owned(file: OutputFile, *others: Span, appends: bool = False, ids: tuple[str, ...] = ("17",)) -> OutputFile:
    return with_owner(file, attempt(), others, ids, appends)


def test_a_file_of_its_own_is_the_attempts() -> None:
    assert owned(log()) == log()
    assert owned(log(), span(-50, -1)) == log()  # Slurm has cut what an earlier job wrote


def test_beside_and_after_others_it_is_hearsay() -> None:
    assert owned(log(), span(10, 50)).doubt == "is shared with job 18"
    assert owned(log(), span(10, 50), span(20, 60, "19")).doubt == "is shared with job 19 and 1 more"
    assert owned(log(), span(100, math.inf)).doubt == "has been overwritten since by job 18"
    assert owned(log(), span(150, math.inf, "17")).doubt == "has been overwritten since by a newer attempt"


def test_what_was_written_long_before_is_nobodys_here() -> None:
    assert "before this attempt began" in owned(log(written=-500.0)).doubt
    assert owned(log(b"", written=-500.0)).doubt == ""


def test_appended_to_an_older_file_only_its_own_times_count() -> None:
    old = b"RuntimeError: shapes\n2027-01-15 07:59:00 old\nold too\n"
    own = b"2027-01-15 08:00:10 gaierror\n  and more"
    assert owned(log(old), appends=True).doubt.startswith("may hold lines from before")
    assert owned(log(old + own), appends=True).tail == own
    assert owned(log(old, start=9), appends=True).doubt == ""  # it is known where the attempt before ended
    assert owned(log(old, birth_s=NOW + 1), appends=True).doubt == ""
    assert owned(log(old, cut=True), appends=True).doubt == ""  # the attempt before left something else there


def test_of_an_earlier_start_of_the_same_job_no_line_counts_that_names_it() -> None:
    slurms = b"slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2027-01-15T07:50:00 DUE TO PREEMPTION ***\n"
    undated = b"slurmstepd: error: Job 17 exceeded memory limit (2048 > 1024), being killed\n"
    step = b"2027-01-15 08:00:10 step 1"
    assert owned(log(slurms + step), appends=True).tail == step
    assert owned(log(undated + step), appends=True).tail == undated + step  # its first start: it has no other
    assert owned(log(undated + step), appends=True, ids=()).tail == step
    assert owned(log(undated + b"step 1"), appends=True, ids=()).doubt.startswith("may hold lines from before")


def test_of_a_shared_file_lines_count_that_name_the_job_or_a_time_when_it_was_alone() -> None:
    text = (
        b"slurmstepd: error: *** JOB 17 ON n1 CANCELLED\nJOB 171 is another\n"
        b"2027-01-15 08:00:05 alone\nwhat follows\n2027-01-15 08:00:06 alone still\nwhose?\n2027-01-15 08:00:30 both\n"
    )
    kept = owned(log(text), span(10, 50)).tail.splitlines()
    assert kept == [
        b"slurmstepd: error: *** JOB 17 ON n1 CANCELLED",
        b"2027-01-15 08:00:05 alone",
        b"what follows",
        b"2027-01-15 08:00:06 alone still",
    ]


def test_lines_of_the_last_second_are_its_own() -> None:
    """Slurm tells an end in whole seconds."""
    lines = b"2027-01-15 08:01:40 at its end\n2027-01-15 08:01:41 after it"
    assert owned(log(lines), span(200, math.inf)).tail == b"2027-01-15 08:01:40 at its end"


def test_what_follows_the_last_time_counts_only_where_nobody_else_wrote() -> None:
    text = b"2027-01-15 08:00:05 alone\nwhose?"
    assert owned(log(text), span(10, 50)).tail == b"2027-01-15 08:00:05 alone"
    assert owned(log(text), span(-50, -1), appends=True).tail == text


def test_the_seconds_in_which_another_began_and_ended_are_anothers() -> None:
    text = b"".join(b"2027-01-15 08:00:%02d at %d\n" % (at, at) for at in (9, 10, 50, 51))
    kept = owned(log(text), span(10, 50)).tail.splitlines()
    assert [line[-4:] for line in kept] == [b"at 9", b"t 51"]


lines = st.lists(
    st.sampled_from(
        [b"2027-01-15 07:59:00 a", b"2027-01-15 08:00:20 b", b"2027-01-15 08:01:30 c", b"plain", b"job 17"]
    ),
    max_size=12,
)


@given(lines, st.booleans())
def test_nothing_counts_that_was_said_at_anothers_time(lines: list[bytes], appends: bool) -> None:
    file = owned(log(b"\n".join(lines)), span(10, 50), span(95, 200), appends=appends)
    if not file.doubt:
        assert not {b"2027-01-15 07:59:00 a", b"2027-01-15 08:00:20 b"} & set(file.tail.splitlines())
        assert set(file.tail.splitlines()) <= set(lines)


@pytest.mark.parametrize(
    ("other", "doubt"),
    [
        (span(-50, -0.5), ""),  # it ended before
        (span(-50, 0), ""),
        (span(-50, 0.5), "is shared with job 18"),
        (span(0, 0), "is shared with job 18"),  # it came and went in the second of the start
        (span(99.5, math.inf), "is shared with job 18"),
        (span(100, math.inf), "has been overwritten since by job 18"),
    ],
)
def test_who_ran_beside_an_attempt_and_who_came_after_it(other: Span, doubt: str) -> None:
    assert owned(log(), other).doubt == doubt


def test_a_file_may_be_some_time_older_than_a_start_as_clocks_are_apart() -> None:
    assert owned(log(written=-OLD_S)).doubt == ""
    assert "before this attempt began" in owned(log(written=-OLD_S - 1)).doubt


@pytest.mark.parametrize(("late_s", "is_own"), [(LATE_S, True), (LATE_S + 1, False)])
def test_a_ranks_file_that_went_on_to_be_written_may_be_anothers(late_s: float, is_own: bool) -> None:
    late = log(written=100.0 + late_s, kind=OutputKind.RANK)
    assert bool(owned(late).doubt) is not is_own
    assert owned(replace(late, kind=OutputKind.STDOUT)).doubt == ""
    assert owned(replace(late, kind=OutputKind.RANK), span(10, 20)).doubt == "may hold lines of job 18"


def test_what_is_appended_to_was_written_to_and_not_over() -> None:
    assert owned(log(), span(150, math.inf), appends=True).doubt == "has been written to since by job 18"
    assert owned(log(birth_s=NOW), appends=True).doubt == ""
    assert owned(log(birth_s=NOW - 1), appends=True).doubt.startswith("may hold lines from before")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"job 17 x", True), (b"JobId=17 x", True), (b"Job ID: 17", True), (b"job#17", True), (b"job_id=17", True),
        (b"job 171", False), (b"job 117", False), (b"jobs 17", False), (b"17", False), (b"myjob 17", False),
    ],
)  # fmt: skip
def test_a_line_that_names_the_job_is_its_own(line: bytes, names: bool) -> None:
    kept = owned(log(line + b"\nothers"), span(0, 100))
    assert (kept.tail if not kept.doubt else b"") == (line if names else b"")


def test_an_attempt_that_runs_has_all_lines_since_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = replace(attempt(), end_s=None)
    lines = b"2027-01-15 07:59:59 before\n2027-01-15 08:00:00 first\n2027-01-15 18:00:00 last"
    kept = with_owner(log(lines, written=36_000.0), runs, (), ("17",), True)
    assert kept.tail == b"2027-01-15 08:00:00 first\n2027-01-15 18:00:00 last"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("writes_utc", [True, False])
def test_times_are_read_in_utc_or_in_this_machines_zone_whichever_the_last_write_fits(
    monkeypatch: pytest.MonkeyPatch, zone: str, writes_utc: bool
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        clock = time.gmtime if writes_utc else time.localtime
        told = [time.strftime("%Y-%m-%d %H:%M:%S", clock(NOW + at)).encode() for at in (20, 70)]
        kept = owned(log(b"%s beside\n%s alone" % tuple(told), written=70.0), span(10, 50))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert kept.tail == told[1] + b" alone"


def test_the_head_of_a_file_counts_like_its_end_where_lines_are_told_apart() -> None:
    file = log(b"2027-01-15 08:00:60 late\n", head=b"2027-01-15 08:00:05 early\n")
    assert owned(file, span(10, 50)).head == b""
    assert b"early" in owned(file, span(10, 50)).tail
