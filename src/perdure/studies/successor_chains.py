"""Whole chains in a cell of the study, and links that die early: what planners do with them, beside the oracle.

A chain goes from link to link: the next one begins at the step of the grid after its start, so a planner's chain and
the reactive one drift apart. The oracle of a chain is the best for each link in turn, as that planner would be who knew
all waits and did not look beyond the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

from perdure.studies.successors import (
    JUDGED_AT,
    Interval,
    StudyOptions,
    drawn_blocks,
    gap_interval,
    mean_interval,
    measured_links,
    planners_that_saw,
)  # fmt: skip
from perdure.succession.cells import HOUR_S, Remember, StudyCell
from perdure.succession.episode import SEAMLESS_S, Links
from perdure.succession.sightings import Terms

Floats = NDArray[np.float64]
Submits = Callable[[int], int]
"""The row at which the successor of the link is submitted that begins at a row."""


@dataclass(frozen=True, slots=True)
class CasePoint:
    """What one planner did with all chains, or with all links that die early, at a price of 0.25."""

    case: str
    cell: str
    planner: str
    model: str
    episodes: int
    interruption_h: Interval  # of an episode
    overlap_h: Interval
    seamless: float  # share of successors without an interruption
    gap: Interval  # share of the gap from reactive to the oracle

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def dying_links(cell: StudyCell, column: int, options: StudyOptions, remember: Remember) -> Iterator[CasePoint]:
    """Each link dies at a step of its walltime that is drawn evenly: its successor is submitted then at the latest."""
    links = measured_links(cell, column, options, remember).dying(default_rng(options.seed))
    reactive, oracle = links.submitting(links.last), links.oracle(JUDGED_AT)
    blocks = drawn_blocks(reactive.began_s, options.block_s, options.draws, default_rng(options.seed))
    worst, best = reactive.cost_s(JUDGED_AT), oracle.cost_s(JUDGED_AT)
    for model, planner, seen in planners_that_saw(cell, column, options, remember):
        done = links.played_by(planner, seen, Terms(JUDGED_AT))
        yield CasePoint(
            "links that die early", _name(cell, column), planner.name, model, len(links.first),
            mean_interval(done.interruption_s / HOUR_S, blocks), mean_interval(done.overlap_s / HOUR_S, blocks),
            done.seamless_share, gap_interval(done.cost_s(JUDGED_AT), worst, best, blocks),
        )  # fmt: skip


def whole_chains(
    cell: StudyCell, column: int, options: StudyOptions, remember: Remember, length: int = 10
) -> Iterator[CasePoint]:
    """Chains of so many links that begin where links do, as far as they end within the trace, whoever plans them."""
    links = measured_links(cell, column, options, remember)
    plans: dict[tuple[str, str], Submits] = {
        ("reactive", options.models[0]): lambda first: first + links.length,
        ("oracle", ""): lambda first: _best_row(links, first),
    }
    for model, planner, seen in planners_that_saw(cell, column, options, remember):
        plans[planner.name, model] = lambda first, planner=planner, seen=seen: links.submits_at(  # type: ignore[misc]
            planner, seen, Terms(JUDGED_AT), first, first + links.length
        )
    firsts = links.first.tolist()
    played = {key: [_played(links, first, length, submits) for first in firsts] for key, submits in plans.items()}
    kept = [place for place in range(len(firsts)) if all(each[place] is not None for each in played.values())]
    sums = {key: np.array([each[place] for place in kept], np.float64).reshape(-1, length - 1, 2)
            for key, each in played.items()}  # fmt: skip
    began_s = links.truth.instants_s[[firsts[place] for place in kept]]
    if not len(began_s):
        return
    blocks = drawn_blocks(began_s, options.block_s, options.draws, default_rng(options.seed))
    cost = {key: (each[:, :, 0] + JUDGED_AT * each[:, :, 1]).sum(axis=1) for key, each in sums.items()}
    worst, best = cost["reactive", options.models[0]], cost["oracle", ""]
    for (name, model), each in sums.items():
        late_h, over_h = each[:, :, 0].sum(axis=1) / HOUR_S, each[:, :, 1].sum(axis=1) / HOUR_S
        yield CasePoint(
            f"chains of {length} links", _name(cell, column), name, model, len(began_s), mean_interval(late_h, blocks),
            mean_interval(over_h, blocks), float((each[:, :, 0] < SEAMLESS_S).mean()),
            gap_interval(cost[name, model], worst, best, blocks),
        )  # fmt: skip


def _played(links: Links, first: int, length: int, submits: Submits) -> list[tuple[float, float]] | None:
    """Interruption and overlap of each handover in seconds; None where the trace ends before the chain does."""
    instants, wait_s = links.truth.instants_s, links.truth.wait_s[:, links.column]
    found = []
    for _ in range(length - 1):
        last = first + links.length
        if last >= len(instants):
            return None
        row = submits(first)
        late_s = float(instants[row] + wait_s[row] - instants[last])
        found.append((max(late_s, 0.0), max(-late_s, 0.0)))
        first = int(np.searchsorted(instants, instants[last] + late_s))
    return found if first + links.length < len(instants) else None


def _best_row(links: Links, first: int) -> int:
    """Of equally good rows the latest."""
    rows = np.arange(first + links.length, first - 1, -1)
    late_s = links.truth.instants_s[rows] + links.truth.wait_s[rows, links.column] - links.truth.instants_s[rows[0]]
    return int(rows[np.where(late_s >= 0, late_s, -JUDGED_AT * late_s).argmin()])


def _name(cell: StudyCell, column: int) -> str:
    gpus = cell.shapes[column].gpus
    return f"{cell.trace} {cell.queue.gpus}, {gpus} GPU{'s' if gpus > 1 else ''}"
