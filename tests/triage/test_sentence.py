"""The sentence of a cause says no more than is known: a message of no known cause is quoted."""

import pytest

from perdure.triage.judge import NoModel, judge
from perdure.triage.sentence import MOST_QUOTED

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    assert rows == columns\n'


def _said(log: str) -> str:
    """What a person reads who may read the log."""
    verdict = judge(log.encode(), model=NoModel())
    return verdict.quoted or verdict.summary


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ValueError: no field cls in the shard", 'the program raised ValueError: "no field cls in the shard"'),
        ("KeyError: 'lr_schedule'", "the program raised KeyError: \"'lr_schedule'\""),
        (
            "omp.mods.OddError: it is odd",
            'an error whose like was not seen before: the program raised OddError: "it is odd"',
        ),
        ("AssertionError", 'the program raised AssertionError at "assert rows == columns"'),
    ],
)
def test_an_exception_of_a_wide_class_is_quoted(line: str, says: str) -> None:
    assert _said(f"{TRACE}{line}\n") == says


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/x/y.csv'", "a file or directory is not where"),
        ("NameError: name 'foo' is not defined", "the program's own code is malformed or uses an undefined name"),
    ],
)
def test_a_known_cause_has_its_own_words(line: str, says: str) -> None:
    assert _said(f"{TRACE}{line}\n").startswith(says)


def test_a_summary_which_all_may_read_has_no_word_of_the_log() -> None:
    verdict = judge(f"{TRACE}ValueError: no field cls in the shard\n".encode(), model=NoModel())
    assert "shard" in verdict.quoted
    assert "shard" not in verdict.summary
    more = verdict.remarked("and more")
    assert (more.summary, more.quoted) == (f"{verdict.summary}; and more", f"{verdict.quoted}; and more")


def test_a_quotation_cannot_end_itself_nor_move_a_terminal() -> None:
    said = _said(f'{TRACE}ValueError: a" ; retry\u202e \x1b[2J{"long " * 100}\n')
    quoted = said.removeprefix("the program raised ValueError: ")
    assert quoted.count('"') == len({0, len(quoted) - 1} & {i for i, c in enumerate(quoted) if c == '"'})
    assert quoted.isprintable()
    assert len(quoted) == MOST_QUOTED + 2


def test_a_message_that_only_announces_is_quoted_with_the_first_line_that_explains_it() -> None:
    told = "ValueError: these are odd:\n  Unexpected odd thing: a.b\n  Another odd thing: c.d\n"
    said = _said(TRACE + told)
    assert "Unexpected odd thing: a.b" in said
    assert "Another" not in said
