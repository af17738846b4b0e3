"""The counterfactual table against real insertions, what-if runs, and what episodes cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.simulate import simulate
from perdure.succession.cells import SITE, WRONG, StudyCell, with_limits
from perdure.succession.episode import Links
from perdure.succession.planners.registry import AGENTS, NAMES, planner_named
from perdure.succession.protocol import Trainable, TrainingCase
from perdure.succession.replayed import LinkShape, ReplayedQueue
from perdure.succession.sightings import Sightings, Terms, sightings
from perdure.succession.wait_table import SuccessorWaits
from perdure.succession.what_if import WhatIf
from perdure.traces.generate import generate

HOUR_S, DAY_S = 3600.0, 86_400.0
GPUS = 16
SHAPES = (LinkShape(1, 12 * HOUR_S), LinkShape(4, 12 * HOUR_S))


def forget(key: str, make: Callable[[], Any]) -> Any:
    return make()


@pytest.fixture(scope="module")
def cell() -> StudyCell:
    table = with_limits(generate(400, Cluster.parse("2x8"), 1.05, np.random.default_rng(1)))
    submit_s = np.rint(table.submit_s * 8 * DAY_S / table.submit_s[-1])
    table = replace(table, submit_s=submit_s, gpus=np.minimum(table.gpus, 8), duration_s=np.ceil(table.duration_s))
    return StudyCell("drawn", ReplayedQueue.of(table, GPUS, SITE), SHAPES, HOUR_S, warm_s=2 * DAY_S, tail_s=DAY_S)


@pytest.fixture(scope="module")
def truth(cell: StudyCell) -> SuccessorWaits:
    return cell.truth(forget)


@pytest.fixture(scope="module")
def seen(cell: StudyCell, truth: SuccessorWaits) -> Sightings:
    return sightings(cell.queue, SHAPES[1], 1, truth, cell.what_if(WhatIf(SITE, 4), forget))


@pytest.fixture(scope="module")
def links(truth: SuccessorWaits) -> Links:
    return Links.of(truth, 1, SHAPES[1].limit_s, 3 * HOUR_S)


def test_limits_are_whole_minutes_that_no_job_outlasts() -> None:
    table = generate(200, Cluster.parse("2x8"), 1.05, np.random.default_rng(2))
    known = np.where(np.arange(200) % 2 == 0, table.duration_s * 0.5, np.nan)  # half of a job's life, or none
    for most_s in (7200.0, DAY_S):
        found = with_limits(replace(table, walltime_s=known), most_s)
        assert (found.walltime_s % 60 == 0).all()
        assert found.walltime_s.max() <= most_s
        assert (found.duration_s <= found.walltime_s).all()
        assert (found.duration_s <= np.maximum(table.duration_s, 1.0)).all()


def test_the_table_holds_waits(truth: SuccessorWaits) -> None:
    assert truth.wait_s.shape == (len(truth.instants_s), 2)
    assert (truth.wait_s >= 0).all()
    assert (truth.wait_s > 0).mean() > 0.2, "the queue of this test is too empty to tell anything"


@pytest.mark.parametrize("row", [0, 17, 55, 90])
@pytest.mark.parametrize("column", [0, 1])
def test_a_wait_is_that_of_a_job_inserted_into_the_trace(
    cell: StudyCell, truth: SuccessorWaits, row: int, column: int
) -> None:
    at_s, shape, table = float(truth.instants_s[row]), SHAPES[column], cell.queue.table
    place = int(np.searchsorted(table.submit_s, at_s, "right"))
    inserted = {
        "job_id": "inserted",
        "submit_s": at_s,
        "gpus": shape.gpus,
        "duration_s": shape.limit_s,
        "walltime_s": shape.limit_s,
        "user": "successor",
    }
    columns: dict[str, Any] = {name: _inserted(getattr(table, name), place, value) for name, value in inserted.items()}
    longer = table.take(np.sort(np.append(np.arange(len(table)), min(place, len(table) - 1))))
    found = simulate(replace(longer, **columns), Cluster.parse(f"{GPUS}x1"), Slurm(SITE))
    assert found.start_s[place] - at_s == truth.wait_s[row, column]


def _inserted(column: NDArray[Any], place: int, value: object) -> NDArray[Any]:
    return np.concatenate([column[:place], np.array([value]), column[place:]])


def test_a_picture_is_who_runs_and_who_waits(cell: StudyCell) -> None:
    now = float(cell.instants_s[40])
    picture, queue = cell.queue.picture(now), cell.queue
    runs = (queue.start_s <= now) & (queue.end_s > now)
    assert np.isfinite(picture.start_s).sum() == runs.sum()
    assert set(picture.job_id) == set(queue.table.job_id[(queue.table.submit_s < now) & (queue.end_s > now)])
    assert np.array_equal(picture.duration_s, picture.walltime_s), "a true running time is no part of it"


def test_what_if_runs_do_not_see_the_future(cell: StudyCell) -> None:
    """Other running times of jobs that have not ended, and other arrivals, change no forecast."""
    now = cell.instants_s[[40]]
    queue, rng = cell.queue, np.random.default_rng(0)
    later = queue.end_s > now[0]
    duration_s = np.where(
        later, np.minimum(queue.table.walltime_s, queue.table.duration_s + 500), queue.table.duration_s
    )
    coming = queue.table.submit_s > now[0]
    gpus = np.where(coming, rng.integers(1, 8, len(later)), queue.table.gpus)
    other = replace(queue, table=replace(queue.table, duration_s=duration_s, gpus=gpus))
    what_if = WhatIf(SITE, 4)
    assert np.array_equal(what_if.waits(queue, SHAPES, now).samples_s, what_if.waits(other, SHAPES, now).samples_s)


def test_a_wrong_model_says_something_else(cell: StudyCell) -> None:
    instants = cell.instants_s[30:40]
    right = WhatIf(SITE, 4).waits(cell.queue, SHAPES, instants).samples_s
    wrong = WhatIf(WRONG, 4).waits(cell.queue, SHAPES, instants).samples_s
    assert not np.array_equal(right, wrong)


def test_instants_are_asked_one_by_one(cell: StudyCell) -> None:
    """What is drawn at an instant does not depend on which others are asked, as long as the past is learnt alike."""
    instants, what_if = cell.instants_s[30:34], WhatIf(SITE, 2, relearn_s=0.0)
    together = what_if.waits(cell.queue, SHAPES, instants).samples_s
    assert np.array_equal(together[2:], what_if.waits(cell.queue, SHAPES, instants[2:]).samples_s)


def test_nothing_seen_comes_from_later(seen: Sightings, truth: SuccessorWaits) -> None:
    for row in (30, 60):
        now = seen.instants_s[row]
        for outcome in seen.outcomes[row]:
            assert outcome.wait_s <= now - seen.instants_s[0]
        assert len(seen.outcomes[row]) > 3
    assert any(not outcome.started for row in range(len(seen.instants_s)) for outcome in seen.outcomes[row])


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_costs_no_more_than_any_planner(
    name: str, links: Links, seen: Sightings, truth: SuccessorWaits
) -> None:
    planner = planner_named(name)
    if isinstance(planner, Trainable) and name not in AGENTS:
        lessons = [
            TrainingCase(seen.view(row, now, now + links.length_s, Terms()), float(truth.wait_s[row, 1]))
            for row, now in enumerate(seen.instants_s.tolist())
        ]
        planner = planner.train(lessons, np.random.default_rng(0))
    for price in (1.0, 0.25):
        done = links.played_by(planner, seen, Terms(price))
        assert (links.oracle(price).cost_s(price) <= done.cost_s(price) + 1e-6).all()
        assert ((done.interruption_s == 0) | (done.overlap_s == 0)).all()
        assert (done.submitted_s <= done.began_s + links.length_s).all()


def test_the_reactive_planner_has_no_overlap_and_all_the_wait(
    links: Links, seen: Sightings, truth: SuccessorWaits
) -> None:
    done = links.played_by(planner_named("reactive"), seen, Terms())
    assert (done.overlap_s == 0).all()
    assert np.array_equal(done.interruption_s, truth.wait_s[links.first + links.length, 1])


def test_what_is_remembered_is_not_calculated_again(cell: StudyCell) -> None:
    kept: dict[str, Any] = {}

    def remember(key: str, make: Callable[[], Any]) -> Any:
        if key not in kept:
            kept[key] = make()
        return kept[key]

    first = cell.truth(remember)
    kept_once = dict(kept)
    assert np.array_equal(cell.truth(remember).wait_s, first.wait_s)
    assert kept == kept_once
    other = replace(cell, queue=replace(cell.queue, settings=WRONG))
    other.truth(remember)
    assert len(kept) == 2, "another scheduler is another key"
