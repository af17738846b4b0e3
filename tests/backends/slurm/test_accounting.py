"""Rows of accounting."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.slurm.accounting import (
    FIELDS,
    NOT_TOLD,
    AccountingRow,
    arguments,
    known_fields,
    latest_start,
    read_rows,
    since,
)

D = "0f1e2d3c"


def row(**cells: Any) -> str:
    values = {
        "JobID": "7",
        "JobIDRaw": "7",
        "State": "FAILED",
        "ExitCode": "3:0",
        "Submit": "90",
        "Start": "100",
        "End": "110",
        "UID": "1000",
        "User": "ada",
        "NodeList": "n[1-2]",
        "AllocTRES": "cpu=1,gres/gpu=2",
        "Reason": "None",
        **cells,
    }
    return D.join(values[field] for field in FIELDS) + D + "\n"


def read(
    text: str, fields: tuple[str, str, str, str, str, str, str, str, str, str, str, str] = FIELDS
) -> tuple[tuple[AccountingRow, ...], int]:
    return read_rows(text.encode(), fields, D)


def test_a_row_is_read() -> None:
    ((found,), lost) = read(row(JobID="7_2", JobIDRaw="9"))
    assert (found.job_id, found.raw_id, found.start_s, found.end_s, found.exit_code) == ("7_2", 9, 100, 110, 3)
    assert (found.nodes, found.gpus, found.reason, lost) == (("n1", "n2"), 2, "", 0)


def test_a_job_that_waits_or_was_cancelled_waiting_has_no_start() -> None:
    (waits, cancelled), _ = read(
        row(State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned")
        + row(State="CANCELLED by 1000", Start="100", NodeList="None assigned")
    )
    assert (waits.start_s, waits.end_s, cancelled.start_s) == (None, None, None)


def test_the_latest_start_is_none_that_never_was() -> None:
    """A job that Slurm 22.05 put back before its launch: that row would call an action about the start before stale."""
    ran = row(Start="100", End="110")
    rewritten = row(State="NODE_FAIL", Start="150", End="150")
    rows, _ = read(ran + rewritten + row(JobID="8", Start="300"))
    assert latest_start(rows, "7", 2) == 100
    assert latest_start(rows, "7", 0) == 150
    assert latest_start(rows, "9", 1) == 0


def test_text_of_a_users_stays_in_its_cell() -> None:
    evil = "x\n9|9|RUNNING|\n"
    ((found, other), lost) = read(row(Reason=evil) + row(JobIDRaw="8"))
    assert (found.reason, other.raw_id, lost) == (evil, 8, 0)


def test_rows_that_make_no_sense_are_counted() -> None:
    rows, lost = read(row() + row(UID="?") + row(NodeList="n[") + row())
    assert (len(rows), lost) == (2, 2)


def test_a_job_that_has_just_started_is_not_taken_for_roots() -> None:
    """Seen on 22.05: of jobs that had started within some seconds it said UID 0."""
    (new, roots, nobodys), _ = read(row(UID="0") + row(UID="0", User="root") + row(UID="0", User=""))
    assert (new.uid, roots.uid, nobodys.uid) == (NOT_TOLD, 0, NOT_TOLD)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read_rows(data, FIELDS, D)
    read_rows(row().encode() + data, FIELDS, D)


def test_only_fields_that_the_version_knows_are_asked_for() -> None:
    assert known_fields(b"JobID  State\n NodeList") == FIELDS
    assert known_fields(b"JobID FailedNode StdOut") == (*FIELDS, "FailedNode", "StdOut")


def test_the_call_names_its_window_in_utc() -> None:
    assert since(0.5) == ("-S", "1970-01-01T00:00:00")
    assert arguments(("JobID",), D, "-j", "7") == (
        "sacct", "-a", "-n", "-p", "-X", "-D", f"--delimiter={D}", "-o", "JobID", "-j", "7",
    )  # fmt: skip


@pytest.mark.usefixtures("kolkata")
def test_sacct_is_asked_in_utc_wherever_the_service_runs() -> None:
    assert since(0.5) == ("-S", "1970-01-01T00:00:00")
