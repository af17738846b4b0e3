"""Whose the lines of a file are: an attempt is judged by those alone that are surely its own."""

import math

from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.ownership import Span, with_owner
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import OutputFile

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def attempt(start=0.0, end=100.0, job="17", path="/o/x"):
    ended = None if end is None else NOW + end
    return Attempt(AttemptId("c", job, int(start)), AttemptState.FAILED, ("n1",), NOW + start, ended, stdout=path)


def log(text=b"RuntimeError: shapes\n", written=99.0, **more):
    return OutputFile("/o/x", text, end=len(text), written_s=NOW + written, **more)


def span(start, end, job="18"):
    return Span(job, NOW + start, NOW + end)


def owned(file, *others, appends=False, ids=("17",)):
    return with_owner(file, attempt(), others, ids, appends)


def test_a_file_of_its_own_is_the_attempts():
    assert owned(log()) == log()
    assert owned(log(), span(-50, -1)) == log()  # Slurm has cut what an earlier job wrote


def test_beside_and_after_others_it_is_hearsay():
    assert owned(log(), span(10, 50)).doubt == "is shared with job 18"
    assert owned(log(), span(10, 50), span(20, 60, "19")).doubt == "is shared with job 19 and 1 more"
    assert owned(log(), span(100, math.inf)).doubt == "has been overwritten since by job 18"
    assert owned(log(), span(150, math.inf, "17")).doubt == "has been overwritten since by a newer attempt"


def test_what_was_written_long_before_is_nobodys_here():
    assert "before this attempt began" in owned(log(written=-500.0)).doubt
    assert owned(log(b"", written=-500.0)).doubt == ""


def test_appended_to_an_older_file_only_its_own_times_count():
    old = b"RuntimeError: shapes\n2027-01-15 07:59:00 old\nold too\n"
    own = b"2027-01-15 08:00:10 gaierror\n  and more"
    assert owned(log(old), appends=True).doubt.startswith("may hold lines from before")
    assert owned(log(old + own), appends=True).tail == own
    assert owned(log(old, start=9), appends=True).doubt == ""  # it is known where the attempt before ended
    assert owned(log(old, birth_s=NOW + 1), appends=True).doubt == ""
    assert owned(log(old, cut=True), appends=True).doubt == ""  # the attempt before left something else there


def test_of_a_shared_file_lines_count_that_name_the_job_or_a_time_when_it_was_alone():
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


def test_lines_of_the_last_second_are_its_own():
    """Slurm tells an end in whole seconds."""
    lines = b"2027-01-15 08:01:40 at its end\n2027-01-15 08:01:41 after it"
    assert owned(log(lines), span(200, math.inf)).tail == b"2027-01-15 08:01:40 at its end"


def test_what_follows_the_last_time_counts_only_where_nobody_else_wrote():
    text = b"2027-01-15 08:00:05 alone\nwhose?"
    assert owned(log(text), span(10, 50)).tail == b"2027-01-15 08:00:05 alone"
    assert owned(log(text), span(-50, -1), appends=True).tail == text


def test_the_seconds_in_which_another_began_and_ended_are_anothers():
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
def test_nothing_counts_that_was_said_at_anothers_time(lines, appends):
    file = owned(log(b"\n".join(lines)), span(10, 50), span(95, 200), appends=appends)
    if not file.doubt:
        assert not {b"2027-01-15 07:59:00 a", b"2027-01-15 08:00:20 b"} & set(file.tail.splitlines())
        assert set(file.tail.splitlines()) <= set(lines)
