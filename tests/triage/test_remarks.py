"""What is said of reading an attempt's output."""

import pytest

from perdure.model.output import IS_NOT_THERE, Absent, Output, OutputFile, Why
from perdure.triage.remarks import MOST_REMARKS, remarks_on

GONE = Absent("/o/out", Why.MISSING, IS_NOT_THERE)
NOWHERE = Absent("/o/x/out", Why.NO_DIRECTORY, "its directory /o/x does not exist")
DOUBTED = OutputFile("/o/out", b"RuntimeError", doubt="is shared with job 18")


@pytest.mark.parametrize(
    ("output", "remarks"),
    [
        (Output.of(b"step 1\n"), ()),
        (Output.of(b""), ("this attempt wrote nothing to its logs",)),
        (Output((OutputFile("/o/err", b""),), (GONE,)), ("its log /o/out is not there",)),  # it may have written there
        (Output((), (NOWHERE,)), ("its log /o/x/out cannot be read: its directory /o/x does not exist",)),
        (Output((), (Absent("", Why.UNKNOWN, "nobody knows"),)), ("nobody knows",)),
        (Output((DOUBTED,)), ("/o/out is shared with job 18: whose lines these are cannot be told",)),
        (Output((OutputFile("/o/out", b"x"),), left_out=1), ("1 more files of its ranks were not read",)),
        (Output(), ()),
    ],
)
def test_what_is_missing_or_in_doubt_or_empty_is_said(output: Output, remarks: tuple[str, ...]) -> None:
    assert remarks_on(output) == remarks


@pytest.mark.parametrize("count", [MOST_REMARKS, MOST_REMARKS + 2])
def test_of_many_the_first_are_said_and_how_many_more_there_are(count: int) -> None:
    said = remarks_on(Output((), (GONE,) * count))
    more = count - MOST_REMARKS
    assert said == ("its log /o/out is not there",) * MOST_REMARKS + (
        (f"and {more} more files like these",) * (more > 0)
    )
