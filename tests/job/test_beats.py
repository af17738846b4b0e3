"""``perdure.job.beat``: what is written when, and what the launcher reads of it."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.job.beats import Beat, Beater, BeatReader

INSIDE = {"PERDURE_JOB_ID": "7", "PERDURE_FENCE_JOB": "7"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def beater(directory: Path, **more: Any) -> Beater:
    return Beater.of(INSIDE | {"PERDURE_BEATS_DIR": str(directory)} | more)


def test_a_beat_is_written_when_it_is_due_and_not_in_between(tmp_path: Path, clock: list[float]) -> None:
    heart, reader = beater(tmp_path, PERDURE_BEAT_S="10"), BeatReader(tmp_path)
    heart.beat(1, 0.0)
    assert reader.news() == [Beat(1, 0.0)]
    clock[0] += 9.9
    heart.beat(2, 0.0)
    assert reader.news() == []
    clock[0] += 0.2
    heart.beat(3, 0.0)
    assert reader.news() == [Beat(3, 0.0)]
    assert reader.news() == []


def test_an_announced_pause_and_its_end_are_written_at_once(tmp_path: Path, clock: list[float]) -> None:
    heart, reader = beater(tmp_path), BeatReader(tmp_path)
    heart.beat(1, 0.0)
    heart.beat(2, 600.0)
    assert reader.news() == [Beat(2, 600.0)]
    heart.beat(3, 0.0)
    assert reader.news() == [Beat(3, 0.0)]


@pytest.mark.parametrize(
    "variables",
    [{"PERDURE_BEATS_DIR": ""}, {"PERDURE_JOB_ID": "8"}, {"LOCAL_RANK": "1"}],
    ids=["outside of perdure exec", "a job started from within", "another local rank"],
)
def test_elsewhere_it_does_nothing(tmp_path: Path, variables: dict[str, Any]) -> None:
    heart = beater(tmp_path, **variables)
    heart.beat(1, 600.0)
    assert os.listdir(tmp_path) == []


def test_each_rank_has_its_file(tmp_path: Path) -> None:
    for rank in ("0", "8"):
        beater(tmp_path, RANK=rank, LOCAL_RANK="0").beat(5, 0.0)
    assert sorted(os.listdir(tmp_path)) == ["rank-0.json", "rank-8.json"]
    assert sorted(BeatReader(tmp_path).news(), key=lambda beat: str(beat.rank)) == [Beat(5, 0.0, 0), Beat(5, 0.0, 8)]


def test_a_step_of_another_kind_counts_and_what_is_none_is_refused(tmp_path: Path) -> None:
    import numpy as np

    reader = BeatReader(tmp_path)
    beater(tmp_path).beat(np.int64(12), 0.0)
    assert reader.news() == [Beat(12, 0.0)]
    wrong: Any = object()
    with pytest.raises(TypeError):
        beater(tmp_path).beat(wrong, 0.0)


def test_a_directory_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    beater(tmp_path / "gone").beat(1, 0.0)
    with pytest.raises(OSError):
        BeatReader(tmp_path / "gone").news()


def test_what_is_no_beat_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "junk.json").write_text("{")
    (tmp_path / "link.json").symlink_to(tmp_path / "junk.json")
    (tmp_path / "directory").mkdir()
    beater(tmp_path).beat(1, 0.0)
    assert BeatReader(tmp_path).news() == [Beat(1, 0.0)]
