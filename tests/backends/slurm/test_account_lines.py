"""Lines that accounting gets again once slurmctld has started anew."""

import pytest

from perdure.backends.slurm.account_lines import SENT_S, AccountLines
from perdure.backends.slurm.plans import Accounted

SEVEN, EIGHT = Accounted("7", "perdure: seven"), Accounted("8", "perdure: eight")


@pytest.fixture
def lines() -> AccountLines:
    found = AccountLines()
    found.note([SEVEN, EIGHT])
    assert found.looked("noon", {"7", "8"}, 100.0) == ()
    return found


def test_they_are_due_once_a_while_after_it_started_anew(lines: AccountLines) -> None:
    assert lines.looked("one", {"7", "8"}, 110.0) == ()
    assert lines.looked("one", {"7", "8"}, 110.0 + SENT_S) == (SEVEN, EIGHT)
    assert lines.looked("one", {"7", "8"}, 120.0 + SENT_S) == ()


def test_nothing_is_due_while_it_runs_on(lines: AccountLines) -> None:
    assert lines.looked("noon", {"7", "8"}, 1000.0) == ()


def test_of_a_job_that_goes_on_or_was_forgotten_none_is(lines: AccountLines) -> None:
    lines.looked("noon", {"8"}, 105.0)
    lines.looked("one", {"7", "8"}, 110.0)
    assert lines.looked("one", set(), 110.0 + SENT_S) == (EIGHT,)  # known when slurmctld started: it was sent
    assert not lines.any


def test_a_newer_line_that_was_written_meanwhile_stands(lines: AccountLines) -> None:
    lines.looked("one", {"7", "8"}, 110.0)
    newer = Accounted("7", "perdure: newer")
    lines.note([newer])
    assert lines.looked("one", {"7", "8"}, 110.0 + SENT_S) == (EIGHT,)
    lines.put_off([SEVEN, EIGHT])  # accounting did not answer
    assert lines.looked("one", {"7", "8"}, 115.0 + SENT_S) == (EIGHT,)
