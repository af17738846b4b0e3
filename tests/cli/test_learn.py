"""What ``perdure learn`` prints of words and changed verdicts, as the service tells them."""

from __future__ import annotations

import pytest

from perdure.cli.learn import _print as print_learnt

WORD = {"job_id": "7", "label": "transient", "by": "ada", "time_s": 0.0, "word": "w1", "message": "jammed"}
CHANGE = {"says": "probe -> retry", "jobs": 2, "since_s": 0.0}
MESSAGE = {
    "message": "jammed",
    "passed": 3,
    "failed": 0,
    "users": ["ada"],
    "set_aside": 0,
    "says": "s",
    "fingerprint": "f",
}
NOTHING = {"messages": [], "set_aside": [], "held": False, "rounds": [], "corrections": []}


@pytest.mark.parametrize(
    ("for_all", "confirmed_by", "told"), [(True, "", "all"), (False, "root", "all, by root"), (False, "", "own jobs")]
)
def test_a_word_is_told_with_whom_it_holds_for(
    for_all: bool, confirmed_by: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    word = {**WORD, "for_all": for_all, "confirmed_by": confirmed_by}
    print_learnt({**NOTHING, "corrections": [word]}, wide=True)
    row = capsys.readouterr().out.splitlines()[-1]
    assert f"  {told}  " in row


def test_verdicts_that_a_persons_word_changed_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    changed = [{**CHANGE, "by": "person"}, {**CHANGE, "by": "outcomes"}]
    print_learnt({**NOTHING, "messages": [{**MESSAGE, "changed": changed}]}, wide=True)
    told = capsys.readouterr().out
    assert told.count("by a person's word") == 1
    assert told.count("probe -> retry: 2 jobs") == 2
