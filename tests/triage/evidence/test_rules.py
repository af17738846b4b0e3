"""Rules: each finds what it names and lets pass what it must; a broken file is told in one line."""

import itertools
import random
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.triage.evidence.excerpt import last_block
from perdure.triage.evidence.matching import DENSE_END_BYTES, SEARCHES, STRIDE_BYTES
from perdure.triage.evidence.rule import Force, TriageRule, WrittenFrom
from perdure.triage.evidence.rules import own_rules, read_rules, with_site_rules
from perdure.triage.judge import judge
from perdure.triage.text.clean import without_prefix
from perdure.triage.text.logtext import LogText, blocks
from perdure.triage.verdict import CauseRole

ROOT = Path(__file__).resolve().parents[3]
RULES = own_rules().rules
BASE = '[category.c]\nsays = "s"\n[[rule]]\nname = "r"\npattern = "boom"\ncategory = "c"\np = 0.5\n'

PARTS = """
[category.wide]
says = "wide"
[category.narrow]
part_of = "wide"
says = "narrow"
[[rule]]
name = "r"
pattern = "boom"
category = "narrow"
p = 0.1
"""


def _name(rule: TriageRule) -> str:
    return rule.cause.name


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_finds_its_examples_and_nothing_else(rule: TriageRule) -> None:
    assert rule.yes
    assert rule.no
    for line in rule.yes:
        found = own_rules().match(without_prefix(line.encode()))
        assert found is not None and found.cause.name == rule.cause.name, line  # noqa: PT018
    for line in rule.no:
        found = own_rules().match(without_prefix(line.encode()))
        assert found is None or found.cause.name != rule.cause.name, line


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_the_screen_stops_at_every_example(rule: TriageRule) -> None:
    for line in rule.yes:
        log = f"step 1 loss 0.3\n{line}\nstep 2 loss 0.2\n".encode()
        assert [hit.line for hit in own_rules().hits(LogText.of(log))] == [2]


COVERED = [
    "PyTorch", "torchrun", "NCCL", "CUDA and Xid", "cuDNN", "DeepSpeed", "Lightning", "Hugging Face", "Accelerate",
    "TensorFlow", "JAX and XLA", "MPI, UCX and PMIx", "Horovod", "Ray", "Dask", "Slurm", "Kubernetes", "NFS", "Lustre",
    "S3", "HDFS", "kernel and OOM killer", "Python", "shell", "containers",
]  # fmt: skip


def test_there_are_enough_rules_and_each_says_what_it_is_and_what_to_do() -> None:
    assert len(RULES) >= 60
    assert [rule.cause.name for rule in RULES if not (rule.cause.says and rule.cause.advice and rule.software)] == []


@pytest.mark.parametrize("software", COVERED)
def test_what_jobs_run_on_is_covered_and_its_makers_are_cited(software: str) -> None:
    about = [rule for rule in RULES if software in rule.software]
    assert len(about) >= 2
    assert all(rule.see.startswith("https://") for rule in about)


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_has_its_place_in_the_documentation(rule: TriageRule) -> None:
    assert f"\n## {rule.cause.name}\n" in (ROOT / "docs" / "reference" / "rules.md").read_text()


XID_RULES = {
    "xid-reset-gpu": "xid-reset",
    "xid-restart-node": "xid-reset",
    "xid-memory-or-link": "xid-memory-or-link",
    "xid-application": "xid-application",
    "xid-restart-application": "xid-restart-application",
    "xid-ignore": "xid-notice",
}


def test_every_xid_of_the_catalogue_leads_to_the_rule_of_its_action() -> None:
    codes = tomllib.loads((ROOT / "src" / "perdure" / "triage" / "rules.toml").read_text())["codes"]
    codes = {name: numbers for name, numbers in codes.items() if name.startswith("xid-")}
    assert set(codes) == set(XID_RULES)
    listed = [code for numbers in codes.values() for code in numbers]
    assert len(listed) == len(set(listed))
    expected = {code: XID_RULES[name] for name, numbers in codes.items() for code in numbers}
    for code in range(1, 173):
        found = own_rules().match(f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=7, name=python".encode())
        assert found is not None and found.cause.name == expected.get(code, "xid-other"), code  # noqa: PT018


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
    assert found.cause.role is CauseRole.CONFIRMATION


def test_where_software_says_warn_of_errors_its_lines_count_in_full() -> None:
    for line in (
        b"NCCL WARN Bootstrap : no socket interface found",
        b"Warning  FailedMount  kubelet  MountVolume.SetUp failed",
    ):
        found = own_rules().match(line)
        assert found is not None and found.cause.role is CauseRole.ROOT  # noqa: PT018
    found = own_rules().match(b"[WARN] KeyError: 'x'")
    assert found is None or found.cause.role is CauseRole.CONFIRMATION


def test_the_schedulers_word_cannot_be_softened_by_a_word_on_its_line() -> None:
    found = own_rules().match(b"slurmstepd: error: *** JOB 1 ON ignored CANCELLED AT x DUE TO TIME LIMIT ***")
    assert found is not None
    assert (found.cause.role, found.cause.force) == (CauseRole.ROOT, Force.DECISIVE)


def test_of_a_storm_of_lines_the_first_and_the_last_are_kept() -> None:
    log = b"".join(b"TypeError: number %d\n" % i for i in range(1, 10_001))
    lines = [hit.line for hit in own_rules().hits(LogText.of(log), keep=5)]
    assert lines == [1, 2, 3, 4, 5, 9996, 9997, 9998, 9999, 10000]


WORDS = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=4)]
STORM = [f"Error: {a} {b}\n" for a, b in itertools.product(WORDS[::16], WORDS[::16])]


def test_in_a_storm_of_lines_of_which_none_is_like_another_the_cause_is_found() -> None:
    for place in (0, 100, 30_000, len(STORM) - 1):
        log = "".join([*STORM[:place], "OSError: [Errno 28] No space left on device\n", *STORM[place:]])
        hits = own_rules().hits(LogText.of(log.encode()))
        assert ("disk-full", place + 1) in [(hit.cause.name, hit.line) for hit in hits]
        assert hits[-1].line == len(STORM) + 1
        assert next(iter(last_block(hits))).line == 1, "a storm is one block of failure lines"


def test_the_work_for_a_storm_is_bounded() -> None:
    block = next(blocks(LogText.of("".join(STORM).encode()).windows[0]))
    assert block.end - block.start > 200_000
    assert (
        len(list(own_rules().matcher()(block)))
        <= SEARCHES + 2 * (block.end - block.start) / STRIDE_BYTES + DENSE_END_BYTES / len(STORM[0]) + 2
    )


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
        (BASE.replace("0.5", "1.5"), "rule 'r'.p: 1.5 is out of range"),
        (BASE.replace("0.5", "true"), "rule 'r'.p: True is not a chance"),
        (BASE.replace('category = "c"', 'category = "d"'), "unknown category 'd'"),
        (BASE + 'role = "cause"\n', "rule 'r'.role: 'cause' is not 'root'"),
        (BASE + "colour = 1\n", "rule 'r'.colour: is not known"),
        (BASE.replace("p = 0.5\n", ""), "rule 'r'.p: is missing"),
        (BASE.replace("says", "sais"), "category 'c'.sais: is not known"),
        ("[rules]\n", "site.toml: rules: is not known. Use one of: category"),
        (BASE + 'software = ["x"]\n', "unknown software 'x'"),
        ("[software.x]\ncolour = 1\n", "software 'x'.colour: is not known"),
        (BASE.replace("boom", "boom {{x}}"), "'r': unknown codes 'x'"),
        (BASE.replace("boom", "boom {{x"), "'r': unknown codes 'x'"),
        ('[codes]\nx = ["a"]\n', "codes 'x'[0]: 'a' is not a whole number of at least 0"),
        ("[codes]\nx = []\n", "codes 'x': [] is not a list of whole numbers"),
        ('[codes]\nx = ""\n', "codes 'x': '' is not a list of whole numbers"),
        ('[errno]\nE = ["a", "b"]\n', "errno 'E'[0]: 'a' is not a whole number"),
        ("[errno]\nE = [1]\n", "errno 'E': [1] is not a number and a text"),
        ("rule = 3\n", "site.toml: rule: 3 is not tables"),
        ("rule = [3]\n", "rule 1: 3 is not a table"),
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


def test_a_site_may_name_lists_of_codes_and_software_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        '[software.fabric]\nsee = "https://example.org"\n[codes]\nbad = [7, 12]\n[[rule]]\nname = "fabric"\n'
        'pattern = \'fabric code (?:{{bad}})\\b\'\ncategory = "net"\nsoftware = ["fabric", "NCCL"]\np = 0.9\n'
    )
    rules = with_site_rules(path)
    assert [rules.match(line) is not None for line in (b"fabric code 12", b"fabric code 13")] == [True, False]
    assert rules.rules[0].see == "https://example.org"


def test_what_a_site_says_of_a_name_takes_the_place_of_perdures_own_word(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        '[category.net]\nsays = "our fabric broke"\n[software.NCCL]\nsee = "https://example.org"\n'
        '[codes]\nxid-ignore = [7, 12]\n[errno]\nEIO = [905, "our own words"]\n'
        "[[rule]]\nname = \"fabric\"\npattern = 'fabric code (?:{{xid-ignore}})\\b'\n"
        'errno = ["EIO"]\ncategory = "net"\nsoftware = ["NCCL"]\np = 0.9\n'
    )
    rule, lines = with_site_rules(path).rules[0], ("code 12", "code 14", "our own words", "Input/output error")
    assert (rule.cause.says, rule.see) == ("our fabric broke", "https://example.org")
    assert [re.search(rule.pattern, f"fabric {line}") is not None for line in lines] == [True, False, True, False]


def test_a_missing_site_file_is_told() -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        with_site_rules(Path("none.toml"))


def test_the_automata_hold_what_all_rules_match() -> None:
    """One that outgrows its memory is built anew again and again: twenty times as slow on a storm of matching lines."""
    book, lines = own_rules(), [line.encode() for rule in own_rules().rules for line in rule.yes]
    random.Random(7).shuffle(lines)

    def seconds(search: Callable[[bytes], object]) -> float:
        for line in lines:
            search(line)
        begun = time.process_time()
        for line in lines * 3:
            search(line)
        return time.process_time() - begun

    quickest, *_, slowest = sorted(map(seconds, (book.screen.search, book.sharp_screen.search, book.match)))
    assert slowest < 8 * quickest


def test_a_category_that_is_part_of_a_wider_one_is_itself_to_people_and_the_wider_to_reasoning() -> None:
    cause = read_rules(PARTS, "x.toml").rules[0].cause
    assert (cause.category, cause.wider, cause.says) == ("narrow", "wide", "narrow")


def test_a_category_that_is_part_of_none_is_its_own_wider_one() -> None:
    cause = read_rules(PARTS.replace('part_of = "wide"\n', ""), "x.toml").rules[0].cause
    assert cause.wider == cause.category == "narrow"


def test_each_narrow_category_is_part_of_one_that_rules_know() -> None:
    known = {rule.cause.category for rule in own_rules().rules}
    narrow = {rule.cause.category: rule.cause.part_of for rule in own_rules().rules if rule.cause.part_of}
    assert narrow["import"] == "config"
    assert set(narrow.values()) <= known
    assert not set(narrow.values()) & set(narrow)


def test_a_verdict_names_the_narrow_category() -> None:
    log = b"Traceback (most recent call last):\nModuleNotFoundError: No module named 'joblib'\n"
    assert judge(log).category == "import"


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_says_what_it_was_written_from(rule: TriageRule) -> None:
    assert rule.written_from is not WrittenFrom.SITE
    assert rule.see or rule.written_from is not WrittenFrom.DOCUMENTATION


def test_a_site_writes_its_own_rules() -> None:
    text = '[category.c]\n[[rule]]\nname = "r"\ncategory = "c"\np = 0.5\npattern = "x"\n'
    (rule,) = read_rules(text, "site.toml").rules
    assert rule.written_from is WrittenFrom.SITE
    with pytest.raises(ConfigError, match="from"):
        read_rules(text + 'from = "hearsay"\n', "site.toml")
