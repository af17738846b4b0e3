"""How good planners are: interruption against overlap over prices, next to the oracle, under a true and a wrong model.

Planners learn from the first part of the time, and are measured on links that begin and end after it. A planner's
share of the gap is how much of the cost between the reactive planner and the oracle it saves. Intervals are by blocks
of days: links that overlap share their fate, so whole stretches of them are drawn, not single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.succession.cells import HOUR_S, Remember, StudyCell, wrong_model
from perdure.succession.episode import SEAMLESS_S, Handover, Links
from perdure.succession.planners.registry import planner_named
from perdure.succession.protocol import Planner, Trainable, TrainingCase
from perdure.succession.sightings import Sightings, Terms, sightings
from perdure.succession.trained import TrainedFor, TrainedPlanner
from perdure.succession.what_if import WhatIf
from perdure.waits.past import DAY_S

Floats = NDArray[np.float64]
PRICES = (16.0, 4.0, 1.0, 0.25, 0.1, 0.05)
JUDGED_AT = 0.25  # the price of overlap at which shares of the gap are told
LIGHT_S, HEAVY_S = 2 * HOUR_S, 12 * HOUR_S  # of the mean wait of reactive successors
MODELS: Mapping[str, Callable[[SchedulerSettings], SchedulerSettings]] = {"true": lambda own: own, "wrong": wrong_model}
"""Of the scheduler, for what-if runs: from the settings that the trace goes through."""
UNTOUCHED = ("reactive", "average", "quantile", "forest", "boosted")  # by the model: they see no forecast
PRICELESS = ("reactive", "average", "forest")  # they do the same at each price of overlap
BASELINES = ("average", "quantile")


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What is measured."""

    planners: tuple[str, ...]
    models: tuple[str, ...] = ("true", "wrong")
    prices: tuple[float, ...] = PRICES
    learn_share: float = 0.55  # of the time
    link_every_s: float = 8 * HOUR_S
    samples: int = 8
    draws: int = 1000
    block_s: float = 4 * DAY_S
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and between what 95% of the means of drawn blocks lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """What one planner did at one price of overlap."""

    planner: str
    model: str
    price: float
    interruption_h: Interval
    overlap_h: Interval
    seamless: float  # share of links without an interruption
    wasted_gpu_h: float  # a link, by overlap
    wasted_share: float  # of the GPU time of a link
    cost_h: float
    regret_h: Interval  # of the cost over the oracle's
    gap: Interval  # share of the gap from reactive to the oracle


@dataclass(frozen=True, slots=True)
class CellStudy:
    """One trace, cluster and shape."""

    trace: str
    gpus: int  # of the cluster
    shape_gpus: int
    load: str
    links: int
    reactive_h: float
    oracle_h: Mapping[str, tuple[float, float]]  # by price: interruption and overlap
    points: tuple[Point, ...]
    better: Mapping[str, bool | None] = field(default_factory=dict)
    """By model and planner: whether its frontier lies below those of the baselines, at their overlaps."""

    @property
    def name(self) -> str:
        return f"{self.trace} {self.gpus}, {self.shape_gpus} GPU{'s' if self.shape_gpus > 1 else ''}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


def study_cell(
    cell: StudyCell,
    column: int,
    options: StudyOptions,
    remember: Remember,
    tell: Callable[[str], None] = lambda _: None,
) -> CellStudy:
    """Measure planners in one cell, for one of its shapes."""
    shape, links = cell.shapes[column], measured_links(cell, column, options, remember)
    reactive = links.submitting(links.last)
    oracle = {price: links.oracle(price) for price in options.prices}
    blocks = drawn_blocks(reactive.began_s, options.block_s, options.draws, default_rng(options.seed))
    points = []
    for model, planner, seen in planners_that_saw(cell, column, options, remember, tell):
        done = links.played_by(planner, seen, Terms(options.prices[0]))
        for price in options.prices:
            if price != options.prices[0] and planner.name not in PRICELESS:
                done = links.played_by(planner, seen, Terms(price))
            points.append(
                _point(planner.name, model, price, done, reactive, oracle[price], shape.gpus, shape.limit_s, blocks)
            )
    return CellStudy(
        cell.trace, cell.queue.gpus, shape.gpus, load_of(float(reactive.interruption_s.mean())), len(links.first),
        _hours(reactive.interruption_s),
        {f"{price:g}": (_hours(each.interruption_s), _hours(each.overlap_s)) for price, each in oracle.items()},
        tuple(points), _better(points, _hours(reactive.interruption_s)),
    )  # fmt: skip


def measured_links(cell: StudyCell, column: int, options: StudyOptions, remember: Remember) -> Links:
    """Links that begin and end after the time of which planners learn."""
    truth = cell.truth(remember)
    links = Links.of(truth, column, cell.shapes[column].limit_s, options.link_every_s)
    return links.within(_cut_s(truth.instants_s, options), float(truth.instants_s[-1]))


def planners_that_saw(
    cell: StudyCell,
    column: int,
    options: StudyOptions,
    remember: Remember,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[str, Planner, Sightings]]:
    """By model, each planner, trained where it learns, and what it sees; what sees no forecast by the first alone."""
    truth, shape = cell.truth(remember), cell.shapes[column]
    links = Links.of(truth, column, shape.limit_s, options.link_every_s)
    for model in options.models:
        what_if = cell.what_if(WhatIf(MODELS[model](cell.queue.settings), options.samples), remember)
        seen = sightings(cell.queue, shape, column, truth, what_if)
        lessons = _lessons(seen, links, _cut_s(truth.instants_s, options))
        for name in options.planners:
            if model == options.models[0] or name not in UNTOUCHED:
                tell(f"{cell.trace} {cell.queue.gpus}, {shape.gpus} GPUs, {model} model: {name}")
                yield model, _trained(name, lessons, options.seed), seen


def _cut_s(instants: Floats, options: StudyOptions) -> float:
    return float(instants[0] + options.learn_share * (instants[-1] - instants[0]))


def trained_on(cell: StudyCell, column: int, options: StudyOptions, remember: Remember) -> Iterator[TrainedPlanner]:
    """Those of the planners that learn, trained on all of the time for one shape of the cell."""
    truth, shape = cell.truth(remember), cell.shapes[column]
    what_if = cell.what_if(WhatIf(cell.queue.settings, options.samples), remember)
    links = Links.of(truth, column, shape.limit_s, options.link_every_s)
    lessons = _lessons(sightings(cell.queue, shape, column, truth, what_if), links, float(truth.instants_s[-1]))
    source = f"{cell.trace}, {cell.queue.gpus} GPUs"
    training = TrainedFor(shape.gpus, shape.limit_s, cell.step_s, source, len(lessons))
    for name in options.planners:
        if isinstance(planner_named(name), Trainable):
            yield TrainedPlanner(_trained(name, lessons, options.seed), training)


def load_of(reactive_s: float) -> str:
    """The load level, by the mean wait of successors that are submitted when their links end."""
    return "light" if reactive_s < LIGHT_S else "medium" if reactive_s <= HEAVY_S else "heavy"


def _lessons(seen: Sightings, links: Links, cut_s: float) -> list[TrainingCase]:
    """All instants whose waits were known at the cut."""
    waits, length_s = links.truth.wait_s[:, links.column], links.length_s
    return [
        TrainingCase(seen.view(row, now, now + length_s, Terms()), wait)
        for row, (now, wait) in enumerate(zip(seen.instants_s.tolist(), waits.tolist(), strict=True))
        if now + wait <= cut_s
    ]


def _trained(name: str, lessons: Sequence[TrainingCase], seed: int) -> Planner:
    planner = planner_named(name)
    return planner.train(lessons, default_rng(seed)) if isinstance(planner, Trainable) else planner


def _point(
    name: str, model: str, price: float, done: Handover, reactive: Handover, oracle: Handover, gpus: int,
    limit_s: float, blocks: NDArray[np.intp],
) -> Point:  # fmt: skip
    cost, worst, best = (each.cost_s(price) for each in (done, reactive, oracle))
    overlap_h = _hours(done.overlap_s)
    return Point(
        name, model, price,
        mean_interval(done.interruption_s / HOUR_S, blocks), mean_interval(done.overlap_s / HOUR_S, blocks),
        done.seamless_share, gpus * overlap_h, overlap_h * HOUR_S / limit_s, _hours(cost),
        mean_interval((cost - best) / HOUR_S, blocks), gap_interval(cost, worst, best, blocks),
    )  # fmt: skip


def _better(points: Sequence[Point], reactive_h: float) -> dict[str, bool | None]:
    """Whether a planner interrupts no longer than each baseline at its overlap, on a frontier drawn between points."""
    found: dict[str, bool | None] = {}
    bases = [each for each in points if each.planner in BASELINES]
    for key in dict.fromkeys((each.model, each.planner) for each in points if each.planner not in UNTOUCHED):
        its = [each for each in points if (each.model, each.planner) == key]
        name = f"{key[0]} {key[1]}"
        found[name] = (
            all(_at_overlap(its, base, reactive_h) <= base.interruption_h.mean + 1e-9 for base in bases)
            if bases
            else None
        )
    return found


def _at_overlap(its: Sequence[Point], base: Point, reactive_h: float) -> float:
    """The interruption of a frontier at the overlap of a base, to a minute: shorter gaps and overlaps count as none.

    It begins at the reactive planner, without overlap.
    """
    overlap = np.array([0.0, *(each.overlap_h.mean for each in its)])
    interruption = np.array([reactive_h, *(each.interruption_h.mean for each in its)])
    order = np.lexsort((interruption, overlap))
    return float(
        np.interp(base.overlap_h.mean + SEAMLESS_S / HOUR_S, overlap[order], np.minimum.accumulate(interruption[order]))
    )


def drawn_blocks(began_s: Floats, block_s: float, draws: int, rng: Generator) -> NDArray[np.intp]:
    """(draws, n) episodes: stretches of neighbours that begin at random ones, around the end to the start."""
    n = len(began_s)
    length = max(1, int((began_s < began_s[0] + block_s).sum())) if n else 1
    begins = rng.integers(0, max(n, 1), (draws, -(-n // length)))
    return ((begins[:, :, None] + np.arange(length)) % max(n, 1)).reshape(draws, -1)[:, :n]


def mean_interval(values: Floats, blocks: NDArray[np.intp]) -> Interval:
    low, high = np.quantile(values[blocks].mean(axis=1), (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def gap_interval(cost: Floats, worst: Floats, best: Floats, blocks: NDArray[np.intp]) -> Interval:
    span = worst.mean() - best.mean()
    if span <= 0:
        return Interval(1.0, 1.0, 1.0)
    drawn_span = (worst - best)[blocks].mean(axis=1)
    drawn = (worst - cost)[blocks].mean(axis=1)[drawn_span > 0] / drawn_span[drawn_span > 0]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(float((worst.mean() - cost.mean()) / span), float(low), float(high))


def _hours(seconds: Floats) -> float:
    return float(seconds.mean() / HOUR_S)
