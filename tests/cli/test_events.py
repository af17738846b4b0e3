"""``perdure raise`` and ``perdure events`` on a running service, and ``--replay`` without one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.events import _journeys
from perdure.coordination.wire import encode
from tests.cli.conftest import Ran
from tests.coordination.test_replay import history


@pytest.fixture
def past(tmp_path: Path) -> Path:
    file = tmp_path / "past.json"
    file.write_text(json.dumps({"exceptions": [encode(record) for record in history()]}))
    return file


def test_a_replay_under_the_same_playbook_changes_nothing(perdure: Callable[..., Ran], past: Path) -> None:
    ran = perdure("events", "--replay", str(past))
    assert (ran.code, ran.out.strip()) == (0, "3 exceptions replayed, 0 would have gone otherwise")


def test_a_replay_under_another_one_says_what_changes(perdure: Callable[..., Ran], past: Path, tmp_path: Path) -> None:
    book = tmp_path / "new.toml"
    book.write_text('[failures.gpu]\nseats = { resource_manager = "leave" }\n')
    ran = perdure("events", "--replay", str(past), "--playbook", str(book), "--json")
    assert (ran.code, ran.json["exceptions"]) == (1, 3)
    assert [one["id"] for one in ran.json["differences"]] == ["fault"]


def test_one_record_a_line_is_read_too(perdure: Callable[..., Ran], past: Path, tmp_path: Path) -> None:
    lines = tmp_path / "past.jsonl"
    lines.write_text("\n".join(json.dumps(one) for one in json.loads(past.read_text())["exceptions"]))
    assert perdure("events", "--replay", str(lines)).out.startswith("3 exceptions replayed")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "past.json:1"),
        ('{"exceptions": [{"id": "x"}]}', "exception 1: type: is missing"),
        ('[{"id": "x", "type": "a", "subject": {}, "time": 1, "severity": 9}]', "exception 1: severity"),
        ("5", "exception 1"),
    ],
)
def test_a_past_that_cannot_be_read_is_named(perdure: Callable[..., Ran], past: Path, text: str, said: str) -> None:
    past.write_text(text)
    ran = perdure("events", "--replay", str(past))
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_playbook_with_a_circle_is_named(perdure: Callable[..., Ran], past: Path, tmp_path: Path) -> None:
    book = tmp_path / "new.toml"
    book.write_text('[failures.x]\nlike = "y"\n[failures.y]\nlike = "x"\n')
    ran = perdure("events", "--replay", str(past), "--playbook", str(book))
    assert (ran.code, "x -> y -> x" in ran.err) == (2, True)


def test_a_playbook_needs_a_past(perdure: Callable[..., Ran], tmp_path: Path) -> None:
    ran = perdure("events", "--playbook", str(tmp_path / "x.toml"))
    assert (ran.code, "events list: No such option: --playbook" in ran.err) == (2, True)


def told(time_s: float, **more: Any) -> dict[Any, Any]:
    return {"time": time_s, "component": "operator:root", "key": "k", "value": "v", **more}


@pytest.mark.parametrize(
    ("state", "outcome", "now"),
    [
        ("escalated", "", "now: escalated; a person is needed, then: perdure events close 'a b' \"what you did\""),
        ("escalated", "recovered", "now: recovered"),
        ("escalated", "closed", "now: closed by operator:root: rebooted the switch"),
        ("stopped", "stopped", "now: stopped"),
        ("in_chain", "", "now: in_chain"),
    ],
)
def test_a_journey_ends_with_how_it_stands(
    capsys: pytest.CaptureFixture[str], state: str, outcome: str, now: str
) -> None:
    record = {
        "id": "a b", "type": "app.nan", "severity": 1, "time": 100.0, "note": "", "detected_by": "user:ada",
        "annotations": [told(160.0, key="closed", value="rebooted the switch")] if outcome == "closed" else [],
        "verdicts": [], "state": state, "outcome": outcome,
    }  # fmt: skip
    _journeys([record])
    assert capsys.readouterr().out.splitlines()[-1].strip() == now


def test_what_the_service_lists_is_replayed_as_it_was_recorded(perdure: Callable[..., Ran], tmp_path: Path) -> None:
    listed = [{**encode(record), "state": record.standing, "chain_state": record.state.value} for record in history()]
    listed[0] = {**listed[0], "state": "stopped", "outcome": "stopped"}
    (tmp_path / "past.json").write_text(json.dumps({"exceptions": listed}))
    ran = perdure("events", "--replay", str(tmp_path / "past.json"))
    assert (ran.code, ran.out.strip()) == (0, "3 exceptions replayed, 0 would have gone otherwise")


def test_a_journey_begins_with_the_raising_whatever_its_clock_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The machine of who raised it was 40 s ahead of the one that answered."""
    record = {
        "id": "x", "type": "app.nan", "severity": 1, "time": 100.0, "note": "", "detected_by": "user:ada",
        "annotations": [told(61.0)], "verdicts": [
            told(60.5, verdict="declined", note="no", handler="", actions=[]),
        ], "state": "in_chain", "outcome": "",
    }  # fmt: skip
    _journeys([record])
    steps = [line.strip() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert steps == [
        "+     0.0 s  raised by user:ada",
        "+     0.0 s  operator:root declined: no",
        "+     0.0 s  operator:root noted k: v",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("raise", "1"), "--type: is missing"),
        (("raise", "--type", "app.nan", "1", "--", "{nonsense"), "-- JSON"),
        (("raise", "--type", "app.nan", "1", "--", "[1]"), "is not an object"),
        (("raise", "--type", "app.nan", "--severity", "9", "1"), "--severity: 9 is not a severity. Use 0 (fatal)"),
        (("raise", "--type", "app.nan", "--severity", "-1", "1"), "--severity: -1 is not a severity"),
        (("raise", "--from", "flux"), "needs a file"),
    ],
)
def test_what_is_wrong_with_a_raising_is_named(perdure: Callable[..., Ran], words: tuple[str, ...], said: str) -> None:
    ran = perdure(*words)
    assert ran.code == 2
    assert said in ran.err


def test_what_is_to_be_closed_is_named(perdure: Callable[..., Ran]) -> None:
    ran = perdure("events", "--close", "rebooted")
    assert (ran.code, "events close: Missing argument 'NOTE'" in ran.err) == (2, True)
