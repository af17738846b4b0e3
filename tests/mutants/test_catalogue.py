"""The catalogue of deliberate bugs fits the code as it stands: each can be put in, and is still a program."""

import ast

import pytest

from tests.mutants.catalogue import ROOT, bugs

ALL = bugs()


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_bug_can_be_put_in(bug):
    text = bug.put_into((ROOT / bug.path).read_text())
    ast.parse(text)
    for test in bug.tests:
        kind, _, seeds = test.partition(":")
        assert (kind == "dst" and seeds.isdecimal()) or (ROOT / test.partition("::")[0]).exists(), test


def test_no_two_bugs_share_a_name():
    names = [bug.name for bug in ALL]
    assert len(set(names)) == len(names)
