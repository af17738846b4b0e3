"""Rules: each finds what it names and lets pass what it must; a broken file is told in one line."""

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.triage.clean import without_prefix
from perdure.triage.logtext import LogText
from perdure.triage.rule import Force, Rule
from perdure.triage.rules import own_rules, read_rules, with_site_rules
from perdure.triage.verdict import Role

RULES = own_rules().rules
BASE = '[category.c]\nsays = "s"\n[[rule]]\nname = "r"\npattern = "boom"\ncategory = "c"\np = 0.5\n'


def _name(rule: Rule) -> str:
    return rule.cause.name


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_finds_its_examples_and_nothing_else(rule: Rule) -> None:
    assert rule.yes
    assert rule.no
    for line in rule.yes:
        found = own_rules().match(without_prefix(line.encode()))
        assert found is not None and found.cause.name == rule.cause.name, line  # noqa: PT018
    for line in rule.no:
        found = own_rules().match(without_prefix(line.encode()))
        assert found is None or found.cause.name != rule.cause.name, line


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_the_screen_stops_at_every_example(rule: Rule) -> None:
    for line in rule.yes:
        log = f"step 1 loss 0.3\n{line}\nstep 2 loss 0.2\n".encode()
        assert [hit.line for hit in own_rules().hits(LogText.of(log))] == [2]


def test_there_are_enough_rules_and_each_speaks() -> None:
    assert len(RULES) >= 60
    assert all(rule.cause.says for rule in RULES)
    assert all(rule.cause.advice for rule in RULES if rule.cause.role is Role.ROOT)


@pytest.mark.parametrize(
    "line",
    [
        "step 100 loss 2.31 error_rate 0.3 lr 1e-4",
        "2025-01-01 INFO no errors found, 0 failed, 12 passed",
        "epoch 3: nan_count=0, retries=0, timeouts=0",
        "saved checkpoint step_40.npz",
        "NCCL version 2.21.5+cuda12.4",
        "Loading `x` is finished",
        "CUDA kernel errors might be asynchronously reported at some other API call",
        "x.py:3: FutureWarning: this will raise ValueError: in the future",
    ],
)
def test_ordinary_lines_and_advice_match_nothing(line: str) -> None:
    assert own_rules().match(line.encode()) is None


def test_a_failure_that_is_retried_confirms_at_most() -> None:
    found = own_rules().match(b"Connection refused, retrying in 3 s (attempt 1/5)")
    assert found is not None
    assert found.cause.role is Role.CONFIRMATION


def test_the_schedulers_word_cannot_be_softened_by_a_word_on_its_line() -> None:
    found = own_rules().match(b"slurmstepd: error: *** JOB 1 ON ignored CANCELLED AT x DUE TO TIME LIMIT ***")
    assert found is not None
    assert (found.cause.role, found.cause.force) == (Role.ROOT, Force.DECISIVE)


def test_of_a_storm_of_lines_the_first_and_the_last_are_kept() -> None:
    log = b"".join(b"TypeError: number %d\n" % i for i in range(1, 10_001))
    lines = [hit.line for hit in own_rules().hits(LogText.of(log), keep=5)]
    assert lines == [1, 2, 3, 4, 5, 9996, 9997, 9998, 9999, 10000]


def test_a_hit_in_an_over_long_line_is_found() -> None:
    log = b"x" * 3_000_000 + b" OSError: [Errno 28] No space left on device " + b"y" * 100
    hits = own_rules().hits(LogText.of(log))
    assert [hit.cause.category for hit in hits] == ["disk_quota"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule", "not TOML"),
        (BASE + BASE.split("\n", 2)[2], "'r': the name is used twice"),
        (BASE.replace("boom", "(?=boom)"), "'r': the pattern is not re2"),
        (BASE.replace("boom", "^boom"), "holds ^"),
        (BASE.replace("boom", "x*"), "matches an empty line"),
        (BASE.replace("0.5", "1.5"), "p = 1.5"),
        (BASE.replace("0.5", "true"), "wrong type"),
        (BASE.replace('category = "c"', 'category = "d"'), "unknown category 'd'"),
        (BASE + 'role = "cause"\n', "role = 'cause' is unknown"),
        (BASE + "colour = 1\n", "unknown key 'colour'"),
        (BASE.replace("p = 0.5\n", ""), "'p' is missing"),
        (BASE.replace("says", "sais"), "unknown key 'sais'"),
        ("[rules]\n", "unknown table 'rules'"),
    ],
)
def test_a_broken_file_is_told_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_rules(text, "site.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("site.toml")
    assert "\n" not in str(caught.value)


def test_a_site_adds_rules_and_replaces_them_by_name(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        '[[rule]]\nname = "our-license"\npattern = "license pool is empty"\ncategory = "lock"\np = 0.95\n'
        '[[rule]]\nname = "nan-loss"\npattern = "our own nan"\ncategory = "numeric"\np = 0.5\n'
    )
    rules = with_site_rules(path)
    assert len(rules.rules) == len(RULES) + 1
    found = rules.match(b"FATAL: license pool is empty")
    assert found is not None and found.cause.name == "our-license"  # noqa: PT018
    replaced = rules.match(b"loss is nan")
    assert replaced is None or replaced.cause.name != "nan-loss"


def test_a_missing_site_file_is_told() -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        with_site_rules(Path("none.toml"))
