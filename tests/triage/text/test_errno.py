"""What a tool says after the last colon is an error of the C library: it decides the cause, whatever stands before."""

import errno
import gettext
import json
import os
import tomllib
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.rules import own_rules, read_rules
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label

RULES = Path(__file__).resolve().parents[3] / "src" / "perdure" / "triage" / "rules.toml"
TABLE = RULES.parent / "data" / "errno_texts.json"
DOCUMENT = tomllib.loads(RULES.read_text())
ERRNO: dict[str, tuple[int, str]] = DOCUMENT["errno"]
OF_ERRNO = {name: rule for rule in DOCUMENT["rule"] for name in rule.get("errno", ())}
FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 600.0, exit_code=1)
FORMS = [
    "cp: cannot stat '/data/p1/x': {}",
    "ls: cannot access '/data/p1/x': {}",
    "cp: cannot open '/data/p1/x' for reading: {}",
    "tar: /data/p1/x: Cannot open: {}",
    "cat: /data/p1/x: {}",
    "mytool: unable to frobnicate /data/p1/x: {}",
    'rsync: [sender] read errors mapping "/data/p1/x": {} ({n})',
    "OSError: [Errno {n}] {}: '/data/p1/x'",
    "{name}: {}",
]


@pytest.mark.parametrize("name", ERRNO)
def test_the_table_is_the_c_librarys_and_each_error_belongs_to_one_rule(name: str) -> None:
    number, text = ERRNO[name]
    assert (getattr(errno, name), os.strerror(number)) == (number, text)
    assert sum(name in rule.get("errno", ()) for rule in DOCUMENT["rule"]) == 1


@pytest.mark.parametrize("name", ERRNO)
def test_the_text_of_the_error_decides_whatever_the_tool_or_its_verb(name: str) -> None:
    number, text = ERRNO[name]
    for form in FORMS:
        line = form.format(text, n=number, name=name)
        found = own_rules().match(line.encode())
        assert found is not None, line
        assert found.cause.category == OF_ERRNO[name]["category"], (line, found.cause.name)


@pytest.mark.parametrize(
    ("line", "label", "category", "bound"),
    [
        ("cp: cannot stat '/nfs/p1/train.tar': Host is down", Label.TRANSIENT, "fs", Bound.SERVICE),
        ("ls: cannot access '/lustre/p1': Communication error on send", Label.TRANSIENT, "fs", Bound.SERVICE),
        ("cp: cannot stat '/nfs/p1': Link has been severed", Label.TRANSIENT, "fs", Bound.SERVICE),
        (
            "cp: cannot open '/gpfs/x' for reading: Resource temporarily unavailable",
            Label.TRANSIENT,
            "unknown",
            Bound.NOTHING,
        ),
        ("flock: cannot open lock file /nfs/x: No locks available", Label.TRANSIENT, "lock", Bound.NOTHING),
        (
            "cp: cannot open '/nfs/home/b/x' for reading: Key has expired",
            Label.DETERMINISTIC,
            "permission",
            Bound.NOTHING,
        ),
        ("OSError: [Errno 127] Key has expired: '/nfs/home/b/x'", Label.DETERMINISTIC, "permission", Bound.NOTHING),
        ("cat: a: Too many levels of symbolic links", Label.DETERMINISTIC, "missing_file", Bound.NOTHING),
        ("cp: cannot stat '/data/x': No such file or directory", Label.DETERMINISTIC, "missing_file", Bound.NOTHING),
        ("ERROR: Cannot open input script in.lj", Label.DETERMINISTIC, "missing_file", Bound.NOTHING),
    ],
)
def test_what_passes_is_retried_and_what_stays_is_not(line: str, label: Label, category: str, bound: Bound) -> None:
    verdict = judge(f"copying the input\n{line}\n".encode(), FAILED)
    assert (verdict.label, verdict.category, verdict.bound) == (label, category, bound)


def test_an_expired_ticket_is_named() -> None:
    verdict = judge(b"cp: cannot open '/nfs/home/b/x' for reading: Key has expired\n", FAILED)
    assert "ticket or key" in verdict.summary
    assert "kinit" in verdict.advice


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[errno]\nEFOO = 7\n", "errno 'EFOO': 7 is not a number and a text"),
        ('[category.c]\n[[rule]]\nname = "r"\ncategory = "c"\np = 0.5\nerrno = ["EFOO"]\n', "unknown errno 'EFOO'"),
        ('[category.c]\n[[rule]]\nname = "r"\ncategory = "c"\np = 0.5\n', "'pattern' is missing"),
        (
            '[category.c]\n[[rule]]\nname = "r"\ncategory = "c"\np = 0.5\npattern = "x"\nhard = true\n',
            "hard needs a form",
        ),
    ],
)
def test_a_broken_table_is_told(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_rules(text, "site.toml")
    assert words in str(caught.value)


TEXTS: dict[str, list[str]] = json.loads(TABLE.read_text("utf-8"))


@pytest.mark.parametrize("english", TEXTS)
def test_an_error_in_another_language_counts_as_in_english(english: str) -> None:
    number = next(number for number, text in ERRNO.values() if text == english)
    for path in ("/data/p1/x", "/tmp/p1/x", "/local_scratch/7/x"):
        for form in ("cp: '{p}': {t}", "mytool: {p}: {t}", "OSError: [Errno {n}] {t}: '{p}'", "cp: „{p}“: {t}"):
            line = form.format(p=path, t=english, n=number).replace("„", "'").replace("“", "'")
            expected = judge(f"step 1\n{line}\n".encode(), FAILED)
            for text in TEXTS[english]:
                found = judge(f"step 1\n{form.format(p=path, t=text, n=number)}\n".encode(), FAILED)
                said = found.category, found.bound, found.summary
                assert said == (expected.category, expected.bound, expected.summary), text


@pytest.mark.parametrize("text", TEXTS["No space left on device"])
def test_a_full_disk_of_the_node_is_one_in_every_language(text: str) -> None:
    assert judge(f"cp: '/tmp/p1/x.tar': {text}\n".encode(), FAILED).bound is Bound.NODE
    assert judge(f"cp: '/data/p1/x.tar': {text}\n".encode(), FAILED).label is Label.DETERMINISTIC


def test_the_translations_are_the_c_librarys() -> None:
    for language in ("de", "fr", "ja", "zh_CN"):
        try:
            catalogue = gettext.translation("libc", "/usr/share/locale", [language])
        except OSError:
            continue  # the translations are not installed
        for english, texts in TEXTS.items():
            text = catalogue.gettext(english)
            assert text == english or text.rstrip(".") in texts, (language, english)
