"""The catalogue of deliberate bugs fits the code as it stands: each can be put in, and is still a program."""

import ast
import tomllib

import pytest

from tests.mutants.catalogue import ROOT, Bug, bugs
from tests.mutants.generated import EQUIVALENT, PARTS

ALL = bugs()


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_bug_can_be_put_in(bug: Bug) -> None:
    text = bug.put_into((ROOT / bug.path).read_text())
    ast.parse(text)
    for test in bug.tests:
        kind, _, seeds = test.partition(":")
        assert (kind == "dst" and seeds.isdecimal()) or (ROOT / test.partition("::")[0]).exists(), test


def test_no_two_bugs_share_a_name() -> None:
    names = [bug.name for bug in ALL]
    assert len(set(names)) == len(names)


def test_what_changes_nothing_still_stands_in_the_code() -> None:
    for entry in tomllib.loads(EQUIVALENT.read_text())["mutant"]:
        assert " ".join(entry["was"].split()) in " ".join((ROOT / "src/perdure" / entry["file"]).read_text().split())
        assert entry["why"]


def test_the_parts_that_mutants_are_made_of_are_there() -> None:
    for part in PARTS.values():
        assert all(list((ROOT / "src/perdure").glob(name)) for name in part.files)
        assert all((ROOT / test).exists() for test in part.tests)
