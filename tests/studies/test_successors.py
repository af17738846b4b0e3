"""The study on a small drawn trace: its bounds, its statistics, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.cli.commands import run
from perdure.cli.study_successors import remembering
from perdure.cli.trained_planner import checked_planner
from perdure.model.cluster import Cluster
from perdure.studies.successors import CellStudy, StudyOptions, load_of, study_cell
from perdure.succession.cells import SITE, Arrays, StudyCell, with_limits
from perdure.succession.replayed import LinkShape, ReplayedQueue
from perdure.succession.trained import unpacked
from perdure.traces.generate import generate
from perdure.waits.answer import AnswerBasis
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedNode, QueuedPartition

HOUR_S, DAY_S = 3600.0, 86_400.0


OPTIONS = StudyOptions(
    ("reactive", "average", "quantile", "conformal"), prices=(1.0, 0.25), samples=2, draws=50, link_every_s=2 * HOUR_S
)


KNOWN: dict[str, Arrays] = {}


def remember(key: str, make: Callable[[], Arrays]) -> Arrays:
    """Calculate once what several tests need."""
    if key not in KNOWN:
        KNOWN[key] = make()
    return KNOWN[key]


def drawn_cell() -> StudyCell:
    """Eight days of drawn jobs, and links of 4 GPUs and 12 hours."""
    table = with_limits(generate(400, Cluster.parse("2x8"), 1.05, np.random.default_rng(1)))
    submit_s = np.rint(table.submit_s * 8 * DAY_S / table.submit_s[-1])
    table = replace(table, submit_s=submit_s, gpus=np.minimum(table.gpus, 8), duration_s=np.ceil(table.duration_s))
    shapes = (LinkShape(4, 12 * HOUR_S),)
    return StudyCell("drawn", ReplayedQueue.of(table, 16, SITE), shapes, HOUR_S, warm_s=2 * DAY_S, tail_s=DAY_S)


@pytest.fixture(scope="module")
def study() -> CellStudy:
    return study_cell(drawn_cell(), 0, OPTIONS, remember)


def test_each_planner_has_a_point_a_price_and_what_sees_a_forecast_one_a_model(study: CellStudy) -> None:
    assert len(study.points) == 2 * (4 + 1)
    assert {each.model for each in study.points if each.planner == "conformal"} == {"true", "wrong"}


def test_no_regret_is_below_zero_and_the_reactive_planner_saves_nothing(study: CellStudy) -> None:
    for each in study.points:
        assert each.regret_h.mean >= -1e-9
        assert each.gap.mean <= 1 + 1e-9
        assert 0 <= each.seamless <= 1
    reactive = [each for each in study.points if each.planner == "reactive"]
    assert all(each.gap.mean == 0 and each.overlap_h.mean == 0 for each in reactive)
    assert study.reactive_h == reactive[0].interruption_h.mean


def test_intervals_hold_their_means(study: CellStudy) -> None:
    for each in study.points:
        for interval in (each.interruption_h, each.overlap_h, each.regret_h):
            assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9


def test_it_can_be_written_as_json(study: CellStudy) -> None:
    assert json.loads(json.dumps(study.to_json()))["points"][0]["planner"] == "reactive"


def test_loads_are_light_medium_and_heavy() -> None:
    assert [load_of(hours * HOUR_S) for hours in (1, 5, 30)] == ["light", "medium", "heavy"]


def test_what_was_calculated_is_kept_in_files(tmp_path: Path) -> None:
    recall, asked = remembering(tmp_path / "kept"), []

    def make() -> dict[Any, Any]:
        asked.append(1)
        return {"wait_s": np.arange(3.0)}

    assert np.array_equal(recall("k", make)["wait_s"], recall("k", make)["wait_s"])
    assert len(asked) == 1
    (tmp_path / "kept" / "k.npz").write_bytes(b"cut off")
    assert np.array_equal(recall("k", make)["wait_s"], np.arange(3.0))
    assert len(asked) == 2


@pytest.fixture
def own_past(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Accounting of 24 days in a partition of 16 GPUs, and some jobs of another."""
    table = with_limits(generate(700, Cluster.parse("2x8"), 1.05, np.random.default_rng(1)))
    submit_s = 1.7e9 + np.rint(table.submit_s * 24 * DAY_S / table.submit_s[-1])
    names = np.where(np.arange(len(table)) % 9, "gpu", "other")
    past = replace(table, submit_s=submit_s, gpus=np.minimum(table.gpus, 8), partition=names, attempts=None)
    nodes = tuple(QueuedNode(f"n{number}", ("gpu",), gpus=8) for number in range(2))
    partitions = (QueuedPartition("gpu", is_default=True), QueuedPartition("other"))
    queue = Queue(1.7e9 + 25 * DAY_S, (), nodes, partitions, "site")
    monkeypatch.setattr(
        "perdure.cli.live_queue.live_queue", lambda: (queue, AnswerBasis(SITE, Past(past, queue.now_s)))
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_planners_learn_from_a_sites_own_past_and_are_written_down(
    own_past: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--planners", "quantile,stopping", "--models", "true", "--limit", "12", "--every", "6"]
    assert (
        run(["study", "successors", *words, "--link-gpus", "4", "--save", str(tmp_path / "new" / "dir"), "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    path = tmp_path / "new" / "dir" / "stopping-4gpu-12h.planner"
    assert (told["trace"], told["saved"]) == ("site-gpu", [str(path)])
    found = unpacked(path.read_bytes(), str(path))
    assert (found.training.gpus, found.training.limit_s, found.training.source) == (4, 12 * HOUR_S, "site-gpu, 16 GPUs")
    assert found.training.cases > 30
    assert checked_planner(None, path)[0] == "stopping"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--partition", "nowhere"], "Use one of: gpu, other"),
        (["--partition", "other"], "it has no GPUs"),
        (["--partition", "gpu", "--trace", "t.swf"], "a trace goes through one partition"),
        (["--trace", "t.swf"], "how large the cluster of the trace is"),
    ],
)
def test_a_past_that_cannot_be_taken_is_said_in_one_line(
    own_past: None, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert run(["study", "successors", *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpus", "0"], "--gpus"),
        (["--gpus", "8", "--planners", "oracle"], "no planner has that name"),
        (["--gpus", "8", "--models", "best"], "no model of the scheduler"),
        (["--gpus", "8", "--days", "9-3"], "--days"),
        (["--gpus", "8"], "a study needs 21"),
    ],
)
def test_bad_input_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    trace = tmp_path / "short.swf"
    trace.write_text(
        "; a trace\n1 0 0 60 1 -1 -1 1 120 -1 1 1 1 1 1 1 -1 -1\n2 60 0 60 1 -1 -1 1 120 -1 1 1 1 1 1 1 -1 -1\n"
    )
    assert run(["study", "successors", "--trace", str(trace), *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
