"""`perdure why` on logs: the record, the card, and the exit code."""

import gzip
import io
import json
import os
import pickle
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.card import card
from perdure.cli.diagnosis import SAME_NODE, Diagnosis, advise, diagnosis_of, record
from perdure.cli.why import exit_code
from perdure.retry.decide import Decision, DecisionKind
from perdure.retry.rules import RetryRules
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict
from tests.cli.conftest import Ran

SHAPE = """epoch 1
Traceback (most recent call last):
RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x5 and 7x1)
"""
PORT = "OSError: [Errno 98] Address already in use\n"
RULES = RetryRules()


def verdict(label: Label, p: float, **more: Any) -> Verdict:
    return Verdict(label, p, "net", "the link was lost", **more)


def test_advice_is_what_the_service_would_decide_without_history() -> None:
    retry = advise(verdict(Label.TRANSIENT, 0.9, wait_s=30.0), RULES)
    assert (retry.kind, retry.exclude, retry.delay_s) == (DecisionKind.RETRY, (SAME_NODE,), 30.0)
    assert advise(verdict(Label.UNSURE, 0.5), RULES).kind is DecisionKind.PROBE
    assert advise(verdict(Label.DETERMINISTIC, 0.02), RULES).kind is DecisionKind.STOP


AGAIN = Decision(DecisionKind.STOP, "it came back", p_transient=0.06)
HEAD = ("id", "verdict", "p_transient", "category", "summary", "rank", "node")


def test_the_record_has_the_promised_form() -> None:
    evidence = (Evidence(7, "link down", CauseRole.ROOT, "link"),)
    found = verdict(Label.TRANSIENT, 0.91234, evidence=evidence)
    assert record(diagnosis_of("a", found, RULES)) == {
        "id": "a",
        "verdict": "transient",
        "p_transient": 0.9123,
        "category": "net",
        "summary": "the link was lost",
        "rank": "",
        "node": "",
        "evidence": [{"line": 7, "text": "link down", "role": "root", "rule": "link"}],
        "advice": {
            "action": "retry",
            "reason": "the link was lost: retry away from the node that it ran on, in 10 s",
            "exclude_node": True,
            "delay_s": 10.0,
        },
    }


def test_the_owner_may_believe_what_the_service_only_tries() -> None:
    """A user's log can say anything of the site: that is known to whoever reads a log of their own."""
    found = diagnosis_of("a", verdict(Label.TRANSIENT, 0.96, infrastructure=True, hearsay=True), RULES)
    assert (found.decision.kind, found.by_service) == (DecisionKind.RETRY, DecisionKind.PROBE)
    assert exit_code([found]) == 0


def test_a_preemption_is_not_held_against_the_node(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(
        "step 9\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***\n"
    )
    ran = perdure("why", "a.log", "--json")
    assert ran.code == 0
    assert not ran.json["advice"]["exclude_node"]
    assert ran.json["advice"]["reason"].endswith("retry anywhere, the node did nothing wrong, in 0 s")
    assert ran.json["by_service"] == "probe"


STOP, PROBE, RETRY = (
    diagnosis_of("a", verdict(label, p), RULES)
    for label, p in ((Label.DETERMINISTIC, 0.0), (Label.UNSURE, 0.5), (Label.TRANSIENT, 0.9))
)


@pytest.mark.parametrize(
    ("diagnoses", "code"),
    [([RETRY], 0), ([None], 0), ([PROBE], 3), ([STOP], 1), ([RETRY, PROBE], 3), ([PROBE, STOP, RETRY], 1)],
)
def test_exit_codes_tell_what_is_advised_apart(diagnoses: list[Diagnosis | None], code: int) -> None:
    assert exit_code(diagnoses) == code


def database() -> bytes:
    """A SQLite file: its first page is zeros but for a few dozen bytes."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table runs(step, loss)")
        connection.commit()
        return connection.serialize()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\n\n  \n", "begins with nothing but blank lines"),
        (random.Random(7).randbytes(4000), "is not text"),
        (bytes(range(16)) * 90, "is not text"),
        (Path(sys.executable).read_bytes()[:30_000], "is not text"),
        (database(), "is not text"),
        (b"\x7fELF" + b"\0" * 60 + SHAPE.encode(), "is not text"),
        (pickle.dumps({"entries": [{"state": "scheduled"}] * 40}, protocol=2), "is not text, but a pickle"),
    ],
)
def test_what_is_no_log_is_bad_input(perdure: Callable[..., Ran], home: Path, content: bytes, says: str) -> None:
    (home / "a.log").write_bytes(content)
    ran = perdure("why", "a.log")
    assert (ran.code, ran.out) == (2, "")
    assert f"a.log: {says}" in ran.err


@pytest.mark.parametrize(
    "text", ["naïve Größe 模型加载失败\n" * 9, "\x1b[31mred\x1b[0m\r 99%|█████▉|\n" * 9, "\0" * 3000 + PORT]
)
def test_texts_of_all_kinds_are_logs(perdure: Callable[..., Ran], home: Path, text: str) -> None:
    (home / "a.log").write_text(text)
    assert perdure("why", "a.log").code in (0, 3)


def test_a_log_is_judged_without_a_service(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(SHAPE)
    ran = perdure("why", "a.log", "--json")
    assert ran.code == 1
    assert ran.json["schema"] == "perdure.why/1"
    assert (ran.json["id"], ran.json["verdict"], ran.json["category"]) == ("a.log", "deterministic", "shape")
    assert ran.json["advice"]["action"] == "stop"
    roots = [line for line in ran.json["evidence"] if line["role"] == "root"]
    assert [(line["line"], line["text"].split(":")[0]) for line in roots] == [(3, "RuntimeError")]


def test_each_log_is_one_line_and_one_finding_is_enough_for_1(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "port.log").write_text(PORT)
    (home / "shape.log").write_text(SHAPE)
    assert perdure("why", "port.log", "--json").code == 0
    ran = perdure("why", "port.log", "shape.log", "--json")
    assert ran.code == 1
    assert [line["id"] for line in ran.jsons] == ["port.log", "shape.log"]


def test_standard_input_is_a_log(perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SHAPE.encode())))
    assert perdure("why", "-", "--json").json["category"] == "shape"


def test_the_card_shows_the_verdict_the_lines_and_the_advice(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(SHAPE)
    ran = perdure("why", "a.log")
    assert ran.code == 1
    headline = ran.out.splitlines()[0]
    assert headline.startswith("a.log")
    assert "DETERMINISTIC" in headline
    assert "3  root     RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x5 and 7x1)\n" in ran.out
    assert "\nSTOP " in ran.out
    assert not any(line.endswith(" ") for line in ran.out.splitlines())


def test_neither_names_nor_lines_reach_the_terminal_raw(perdure: Callable[..., Ran], home: Path) -> None:
    name = "a\x1b[31m[bold]\u202e:smile:.log"
    (home / name).write_text("RuntimeError: CUDA out of memory \x1b]52;c;aGk=\x07[red]x[/red] \u202e[/] :boom:\n")
    ran = perdure("why", name)
    assert not set(ran.out) & set("\x1b\x07\u202e")
    assert "a[31m[bold]:smile:.log" in ran.out
    assert "[red]x[/red]" in ran.out
    assert ":boom:" in ran.out


def test_the_rules_of_the_settings_are_those_of_the_advice(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "port.log").write_text(PORT)
    (home / "site.toml").write_text("[retry]\nback_off_s = 77\nperson_delay_h = 0\n")
    assert perdure("why", "port.log", "--json", "--config", "site.toml").json["advice"]["action"] == "stop"


def test_what_is_no_log_is_refused_in_one_line(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "dir").mkdir()
    os.mkfifo(home / "fifo")
    for target in ("none.log", "dir", "fifo", "/dev/zero"):
        ran = perdure("why", target)
        assert ran.code == 2
        assert ran.complaint.startswith(f"{target}: ")


def test_a_job_id_asks_the_service(perdure: Callable[..., Ran], home: Path) -> None:
    ran = perdure("why", "4711_3")
    assert ran.code == 2
    assert "no service runs with this state directory. Start it: perdure up" in ran.complaint
    (home / "4711_3").write_text(SHAPE)
    assert perdure("why", "4711_3", "--json").json["category"] == "shape"


def test_a_step_stands_for_its_job(perdure: Callable[..., Ran], home: Path) -> None:
    """As in srun's words: error: *** STEP 4711.0 ON n1 CANCELLED."""
    for step in ("4711.0", "4711.batch", "4711_3.extern"):
        assert "no service runs" in perdure("why", step).complaint
        (home / step).write_text(SHAPE)
        assert perdure("why", step, "--json").json["category"] == "shape"
    assert perdure("why", "4711.out").complaint.startswith("4711.out: cannot be read")


# -- many at once


def batch(home: Path, *records: Any) -> str:
    path = home / "a.jsonl"
    path.write_bytes(b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records))
    return str(path)


def test_a_batch_gives_one_line_a_record_with_just_the_promised_keys(perdure: Callable[..., Ran], home: Path) -> None:
    path = batch(home, {"id": "a", "text": SHAPE}, b"", {"id": 7, "text": PORT, "source": "x"}, {"id": "e", "text": ""})
    ran = perdure("why", "--batch", path, "--json")
    assert ran.code == 0
    assert [(line["id"], line["category"]) for line in ran.jsons][:2] == [("a", "shape"), (7, "port_busy")]
    for line in ran.jsons:
        assert list(line) == [*HEAD, "evidence", "advice"]
        assert list(line["advice"]) == ["action", "reason", "exclude_node", "delay_s"]
        assert line["verdict"] in ("deterministic", "transient", "unsure")
        assert 0 <= line["p_transient"] <= 1
        assert line["advice"]["action"] in ("retry", "stop", "probe")


def test_a_batch_for_a_person_is_one_line_a_record(perdure: Callable[..., Ran], home: Path) -> None:
    ran = perdure("why", "--batch", batch(home, {"id": "\x1b[2Ja", "text": SHAPE}))
    assert ran.out.startswith("[2Ja: deterministic, p = 0.0")
    assert ran.out.count("\n") == 1


def test_a_batch_comes_from_standard_input_too(perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"id": "a", "text": SHAPE}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
    assert perdure("why", "--batch", "-", "--json").json["category"] == "shape"


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"text": ""}', "no 'id'"),
        (b'{"id": "a"}', "no 'text'"),
        (b'{"id": true, "text": ""}', "'id' is not a text or a whole number"),
        (b'{"id": "a", "text": 1}', "'text' is not a text"),
        (b'{"id": "a", "text": null}', "'text' is not a text"),
    ],
)
def test_a_bad_record_is_named_by_its_line_after_the_good_ones_were_judged(
    perdure: Callable[..., Ran], home: Path, bad: bytes, what: str
) -> None:
    path = batch(home, {"id": "a", "text": PORT}, b"", bad, {"id": "b", "text": PORT})
    ran = perdure("why", "--batch", path, "--json")
    assert ran.code == 2
    assert [line["id"] for line in ran.jsons] == ["a"]
    assert ran.complaint.startswith(f"{path}:3: {what}")


def test_half_a_character_in_a_record_is_no_error(perdure: Callable[..., Ran], home: Path) -> None:
    path = batch(home, b'{"id": "\\ud800", "text": "\\ud800 RuntimeError: \\udfff"}')
    ran = perdure("why", "--batch", path, "--json")
    assert ran.code == 0
    assert ran.json["id"] == "\ud800"


def test_a_record_beyond_the_bound_is_refused(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.cli.batch.MAX_RECORD_BYTES", 1 << 20)
    ran = perdure("why", "--batch", batch(home, {"id": "a", "text": "x" * (1 << 20)}), "--json")
    assert ran.complaint.endswith(".jsonl:1: longer than 1 MiB. Keep the end of the log only.")


def test_a_batch_that_is_not_there_is_refused(perdure: Callable[..., Ran], home: Path) -> None:
    assert perdure("why", "--batch", "none.jsonl").complaint.startswith("none.jsonl: cannot be read (No such file")
    assert perdure("why", "--batch", "none.jsonl", "a.log").code == 2


def test_the_sites_own_rules_come_first(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "rules.toml").write_text(
        "[category.quota]\nsays = 'the quota is used up'\nadvice = 'Ask for more.'\n"
        "[[rule]]\nname = 'site-quota'\ncategory = 'quota'\npattern = 'SITE-QUOTA'\np = 0.02\n"
        "yes = ['SITE-QUOTA reached']\nno = ['all is well']\n"
    )
    (home / "site.toml").write_text("[triage]\nrules = 'rules.toml'\n")
    (home / "a.log").write_text("SITE-QUOTA reached\n")
    ran = perdure("why", "a.log", "--json", "--config", "site.toml")
    assert ran.json["category"] == "quota", ran.err


def test_a_card_says_one_thing_where_history_speaks_against_a_retry() -> None:
    found = verdict(Label.TRANSIENT, 0.52)
    text = "\n".join(card(Diagnosis("job 7", found, AGAIN)))
    assert "STOP" in text.splitlines()[0]
    assert "p = 0.06" in text
    assert "TRANSIENT" not in text
    assert "0.52" not in text


def test_an_attempt_is_named_only_to_correct_its_verdict(perdure: Callable[..., Ran]) -> None:
    ran = perdure("why", "7", "--attempt", "1")
    assert (ran.code, ran.out) == (2, "")
    assert "why explain: No such option: --attempt" in ran.err
