"""The catalogue: every code of every family is found in its documented form, and what looks alike is not."""

from __future__ import annotations

import pytest

from perdure.triage.catalogue import ANY_WORDS, MessageFamily, own_catalogue
from perdure.triage.evidence.rules import own_categories
from perdure.triage.judge import judge

FAMILIES = own_catalogue().families
WORDS = "of some kind"
"""What may stand in the place of a *."""


def lines_of(family: MessageFamily) -> list[tuple[str, str]]:
    """Each code of a family in its example, with its key."""
    table = family.table
    return [(table.example.replace("{code}", code.replace("*", WORDS)), key) for code, key in table.keys]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.table.name)
def test_each_code_is_found_in_the_form_that_is_documented(family: MessageFamily) -> None:
    for line, key in lines_of(family):
        category, p, fault, means = family.table.codes[key]
        known = family.find(line.encode())
        assert known is not None, line
        assert (known.category, known.p_transient, known.fault, known.means) == (category, p, fault, means), line


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.table.name)
def test_what_looks_alike_is_not_found(family: MessageFamily) -> None:
    assert family.table.near
    for line in family.table.near:
        assert family.find(line.encode()) is None, line


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.table.name)
def test_the_screen_of_all_stops_where_a_family_does(family: MessageFamily) -> None:
    for line, _ in lines_of(family):
        assert own_catalogue().find(line.encode(), family.table.general) is not None, line


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.table.name)
def test_each_entry_says_whence_it_is_and_what_it_means(family: MessageFamily) -> None:
    assert family.table.source
    assert family.table.of
    for category, p, _, means in family.table.codes.values():
        assert category in own_categories()
        assert 0 < p < 1
        assert means == means.strip()
        assert not means.endswith(".")


def test_no_code_has_two_meanings() -> None:
    for family in FAMILIES:
        pairs = {(code.lower(), key) for code, key in family.table.keys}
        assert len({code for code, _ in pairs}) == len(pairs), family.table.name


def test_names_of_families_are_their_own() -> None:
    names = [family.table.name for family in FAMILIES]
    assert len(names) == len(set(names))


def test_a_star_stands_for_few_words_of_one_line() -> None:
    assert ANY_WORDS.startswith("[^\\n]")
    git = next(family for family in FAMILIES if family.table.name == "git")
    assert git.find(b"error: pathspec 'v2' did not match any file(s) known to git") is not None
    assert git.find(b"error: pathspec " + b"x" * 200 + b" did not match any file(s)") is None


@pytest.mark.parametrize(
    "line", [b"", b"step 3 loss 0.5", b"error", b"200 OK", b"Loading module gcc/12", b"\xff\xfe", b"0" * 5000]
)
def test_ordinary_lines_are_in_no_family(line: bytes) -> None:
    assert own_catalogue().find(line) is None
    assert own_catalogue().find(line, general=True) is None


@pytest.mark.parametrize(
    ("line", "category"),
    [
        (b"mkdir: cannot create directory '/x/y': Permission denied", "permission"),
        (b"cp: error writing '/data/y': Input/output error", "fs"),
        (b"tar: out.tar: write error: Disk quota exceeded", "disk_quota"),
    ],
)
def test_what_a_tool_could_not_do_says_less_than_why(line: bytes, category: str) -> None:
    assert own_catalogue().find(line) is None
    assert judge(line).category == category
