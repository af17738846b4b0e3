"""`perdure why --follow`: a file that grows, is truncated, rotated, and taken up again."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.follow import Tail
from perdure.triage.evidence.rules import own_rules
from perdure.triage.follow import Follower, FollowTrouble
from tests.cli.conftest import Ran

NAN = "loss nan\n" * 3


@pytest.fixture
def log(home: Path) -> Path:
    path = home / "job.log"
    path.write_text("step 1 loss 0.3\n")
    return path


@pytest.fixture
def tail(log: Path) -> Iterator[Tail]:
    tail = Tail(log, Follower(own_rules().matcher()))
    yield tail
    tail.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def troubles(tail: Tail, now: float = 1.0) -> list[Any]:
    return [(alarm.trouble, alarm.line) for alarm in tail.alarms(now)]


def test_what_is_appended_is_read(log: Path, tail: Tail) -> None:
    assert troubles(tail) == []
    append(log, NAN)
    assert troubles(tail) == [(FollowTrouble.NAN, 4)]
    assert troubles(tail) == []


def test_a_truncated_file_is_read_from_its_beginning(log: Path, tail: Tail) -> None:
    append(log, "x\n" * 100)
    troubles(tail)
    log.write_text(NAN)
    assert troubles(tail) == [(FollowTrouble.NAN, 3)]


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(log: Path, tail: Tail) -> None:
    append(log, "loss nan\n" * 2)
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), "loss nan\n")
    log.write_text("loss 0.3\n" + NAN)
    assert troubles(tail) == [(FollowTrouble.NAN, 4)]
    assert troubles(tail) == [(FollowTrouble.NAN, 4)]


def test_a_file_that_is_gone_may_come_back(log: Path, tail: Tail) -> None:
    log.unlink()
    assert troubles(tail) == []
    log.write_text(NAN)
    troubles(tail)
    assert tail.inode == (os.stat(log).st_dev, os.stat(log).st_ino)


def test_a_log_that_is_silent_already_is_a_hang_at_once(perdure: Callable[..., Ran], log: Path) -> None:
    os.utime(log, (time.time() - 7200, time.time() - 7200))
    ran = perdure("why", "--follow", "job.log", "--for", "0", "--json")
    assert ran.code == 1
    assert (ran.json["trouble"], ran.json["line"]) == ("hang", 1)
    assert re.match(r"no new line for 72\d\d s", ran.json["says"])


def test_trouble_is_printed_as_it_comes(
    perdure: Callable[..., Ran], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([lambda: append(log, NAN), lambda: None])

    def sleep(seconds: float) -> None:
        if (step := next(waits, None)) is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(time, "sleep", sleep)
    ran = perdure("why", "--follow", "job.log")
    assert ran.code == 1
    assert "job.log:4: nan: the loss is NaN or infinite, 3 times in a row: loss nan\n" in ran.out
    assert ran.out.count("\n") == 1


def test_a_calm_job_is_no_finding(perdure: Callable[..., Ran], log: Path) -> None:
    ran = perdure("why", "--follow", "job.log", "--for", "0")
    assert (ran.code, ran.out) == (0, "")


def test_it_goes_on_where_it_stopped(perdure: Callable[..., Ran], log: Path) -> None:
    append(log, "loss nan\nloss nan\nloss")
    words = ("why", "--follow", "job.log", "--for", "0", "--resume", "state.json", "--json")
    assert perdure(*words).code == 0
    assert json.loads((log.parent / "state.json").read_text())["follower"]["offset"] == log.stat().st_size - 4
    append(log, " nan\n")
    assert perdure(*words).json["line"] == 4


def test_a_file_that_is_another_is_read_from_its_beginning(perdure: Callable[..., Ran], log: Path) -> None:
    words = ("why", "--follow", "job.log", "--for", "0", "--resume", "state.json")
    perdure(*words)
    other = log.with_suffix(".new")
    other.write_text("a\nb\n")
    other.replace(log)
    perdure(*words)
    assert json.loads((log.parent / "state.json").read_text())["follower"]["line"] == 2


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"inode": [1, 2], "follower": {"format": 9}}', "[" * 100_000])
def test_what_is_no_state_is_one_line(perdure: Callable[..., Ran], log: Path, state: str) -> None:
    (log.parent / "state.json").write_text(state)
    ran = perdure("why", "--follow", "job.log", "--resume", "state.json")
    assert ran.code == 2
    assert ran.complaint.startswith("state.json: not ")


@pytest.mark.parametrize("words", [("--follow", "none.log"), ("--follow", "."), ("--follow", "a", "--batch", "b"), ()])
def test_what_cannot_be_followed_is_one_line(perdure: Callable[..., Ran], home: Path, words: tuple[str, ...]) -> None:
    ran = perdure("why", *words)
    assert ran.code == 2
    assert ran.complaint
