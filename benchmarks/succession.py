"""How well planners of successors do: python -m benchmarks.succession TRACES... [--out benchmarks/succession.md]

TRACES are lublin_256.swf.gz, HPC2N-2002-2.2-cln.first120000.swf.gz and CTC-SP2-1996-3.1-cln.swf.gz of the Parallel
Workloads Archive, each of which goes through clusters of three sizes: a cell each. The first is drawn, without limits
(they are made up), the others have real arrivals, users and limits. Links run for 48 hours. Of the cells of the first
trace those of 8 GPUs a link are measured too. What was simulated is kept in the folder `--cache`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from perdure.cli.study_successors import remembering
from perdure.studies.successors import BASELINES, JUDGED_AT, CellStudy, Point, StudyOptions, study_cell
from perdure.succession.cells import HOUR_S, LIMIT_S, SITE, StudyCell, with_limits
from perdure.succession.planners.registry import DEFAULT
from perdure.succession.replayed import LinkShape, ReplayedQueue
from perdure.traces.read import read

DAY_S = 86_400.0
SHAPES = (LinkShape(1, LIMIT_S), LinkShape(8, LIMIT_S))
PLANNERS = ("reactive", "average", "quantile", "forest", "boosted", "rollout", "conformal", "stopping")
PLANS = {  # by the beginning of the file's name: days, clusters, hours between decisions, GPUs of links
    "lublin": ((0, 1000), (360, 315, 290), 1.0, (1, 8)),
    "HPC2N": ((60, 150), (240, 200, 190), 2.0, (1,)),
    "CTC": ((0, 66), (400, 360, 338), 2.0, (1,)),
}
REFERENCE = (("lublin", 360, 1), ("lublin", 360, 8), ("lublin", 315, 1), ("lublin", 315, 8), ("lublin", 290, 1))
OTHERS = "## Whole chains"  # begins what `benchmarks.succession_chains` and people write
INPUT = """\
Traces of the Parallel Workloads Archive, each through clusters of three sizes: a cell each. lublin_256 is drawn, with
made-up limits (running times times 1 + Exp(1)); days 60 to 150 of HPC2N and the first 66 of CTC-SP2 have real arrivals,
users and limits. Links run for 48 hours, with 1 GPU (processor), and on lublin with 8 too.
"""
NOTES = """\
- Planners learn from the first 55% of the time. They are measured on links that begin and end later, one each 8 hours;
  links overlap, so intervals (95%) are by blocks of 4 days. Decisions are each 1 h (lublin) or 2 h.
- *Load* is by the mean wait of successors that are submitted at the end: under 2 h light, over 12 h heavy.
- *Gap*: share of the cost, interruption and 0.25 of overlap, between *reactive* and the oracle that is saved.
- *Wrong model*: what-if runs without the weight of a job's size, backfill over 100 jobs and a day instead of 500 and
  four days, each 120 s instead of 30 s; truth and all that is seen are the same.
- Outcomes of earlier forecasts are those of successors of the same shape, one each 3 hours, as far as they had started;
  a site knows such only of other users' jobs that are alike.
- How *conformal* corrects was chosen on the cells of lublin; those of HPC2N and CTC were measured once, afterwards.
- Frontiers are compared at equal overlap, to a minute a link: shorter gaps and overlaps count as none.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--planners", default=",".join(PLANNERS))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path, help="figures of each cell; those that it has are not measured again")
    asked = parser.parse_args()
    began = time.process_time()
    known = (
        msgspec.json.decode(asked.json.read_bytes(), type=list[CellStudy])
        if asked.json is not None and asked.json.exists()
        else []
    )
    found: list[CellStudy] = []
    others = parts_of_others(asked.out)
    for study in studies(asked.traces, tuple(asked.planners.split(",")), asked.cache, known):
        found.append(study)
        text = "\n".join(report(found, asked.traces)) + "\n"
        if asked.out is not None:
            asked.out.write_text(text + others)
        if asked.json is not None:
            asked.json.write_text(json.dumps([each.to_json() for each in found]))
        print(study.name, f"{time.process_time() - began:.0f} s", flush=True)


def studies(
    traces: Sequence[Path], planners: tuple[str, ...], cache: Path | None, known: Sequence[CellStudy]
) -> Iterator[CellStudy]:
    done = {(each.trace, each.gpus, each.shape_gpus): each for each in known}
    for path in traces:
        name = next(each for each in PLANS if path.name.startswith(each))
        _, sizes, every_h, links = PLANS[name]
        for gpus in sizes:
            cell = read_cell(path, name, gpus, SHAPES, every_h)
            for column, shape in enumerate(SHAPES):
                if shape.gpus in links and (name, gpus, shape.gpus) in done:
                    yield done[name, gpus, shape.gpus]
                elif shape.gpus in links:
                    yield study_cell(cell, column, StudyOptions(planners), remembering(cache))


def parts_of_others(out: Path | None) -> str:
    """What other commands have written into the file."""
    text = out.read_text() if out is not None and out.exists() else ""
    _, mark, rest = text.partition(OTHERS)
    return f"\n{mark}{rest}" if mark else ""


def read_cell(path: Path, name: str, gpus: int, shapes: tuple[LinkShape, ...], every_h: float) -> StudyCell:
    """A trace through a cluster of so many GPUs."""
    table = read(path).table
    begins, ends = np.searchsorted(table.submit_s, [DAY_S * day for day in PLANS[name][0]])
    table = with_limits(table.take(np.arange(begins, ends)))
    return StudyCell(name, ReplayedQueue.of(table, gpus, SITE), shapes, every_h * HOUR_S)


def report(found: Sequence[CellStudy], traces: Sequence[Path]) -> Iterator[str]:
    yield "# When planners submit the successor of a link\n"
    names = " ".join(path.name for path in traces)
    yield f"`python -m benchmarks.succession {names} --out benchmarks/succession.md`, {os.cpu_count()} shared cores,"
    yield f"{platform.machine()}, Python {platform.python_version()}. `perdure study successors` measures others.\n"
    yield INPUT
    yield NOTES
    yield "## Share of the gap at a price of 0.25\n"
    yield from gaps(found)
    yield "\n## Interruption / overlap / links without interruption at a price of 0.25\n"
    yield from details(found)
    yield "\n## The frontier: interruption / overlap in hours by price of overlap\n"
    yield from frontiers(found)
    yield "\n## Bars\n"
    yield from bars(found)
    yield "\nThe published system (Mirage, SC'23) reports 17 to 100% less interruption and 23 to 76% of jobs without"
    yield "any, on traces that are not public."


def gaps(found: Sequence[CellStudy]) -> Iterator[str]:
    columns = list(dict.fromkeys((each.planner, each.model) for each in found[0].points if each.planner != "reactive"))
    yield from _head("cell", "load", "reactive, h", *(f"{name}{_of(model)}" for name, model in columns))
    for study in found:
        its = [_point(study, name, model).gap for name, model in columns]
        shares = (f"{gap.mean:.0%} ({gap.low:.0%} to {gap.high:.0%})" for gap in its)
        yield _row(study.name, study.load, f"{study.reactive_h:.1f}", *shares)


def details(found: Sequence[CellStudy]) -> Iterator[str]:
    columns = list(dict.fromkeys((each.planner, each.model) for each in found[0].points))
    yield from _head("planner", *(study.name for study in found))
    best = [study.oracle_h[f"{JUDGED_AT:g}"] for study in found]
    yield _row("oracle", *(f"{interruption:.1f} / {overlap:.1f}" for interruption, overlap in best))
    for name, model in columns:
        points = [_point(study, name, model) for study in found]
        yield _row(f"{name}{_of(model)}", *(f"{_two(each)} / {each.seamless:.0%}" for each in points))


def frontiers(found: Sequence[CellStudy]) -> Iterator[str]:
    prices = list(dict.fromkeys(each.price for each in found[0].points))
    yield from _head(
        "cell", "planner", *(f"{price:g}" for price in prices), "wasted GPU h a link at 0.25", "regret at 0.25, h"
    )
    for study in found:
        for name, model in (("quantile", "true"), ("rollout", "true"), (DEFAULT, "true"), (DEFAULT, "wrong")):
            judged = _point(study, name, model)
            regret = judged.regret_h
            yield _row(
                study.name,
                f"{name}{_of(model)}",
                *(_two(_point(study, name, model, price)) for price in prices),
                f"{judged.wasted_gpu_h:.1f} ({judged.wasted_share:.0%})",
                f"{regret.mean:.1f} ({regret.low:.1f} to {regret.high:.1f})",
            )


def bars(found: Sequence[CellStudy]) -> Iterator[str]:
    at = {(study.trace, study.gpus, study.shape_gpus): study for study in found}
    judged = [at[each] for each in REFERENCE if each in at]
    for model, least in (("true", 0.6), ("wrong", 0.4)):
        held = sum(_point(study, DEFAULT, model).gap.mean >= least for study in judged)
        yield (
            f"- `{DEFAULT}` saves {least:.0%} of the gap or more with the {model} model in {held} of {len(judged)} "
            "cells of lublin."
        )
    singles = [study for study in found if study.shape_gpus == 1]
    for model in ("true", "wrong"):
        held = sum(bool(study.better.get(f"{model} {DEFAULT}")) for study in singles)
        yield (
            f"- Its frontier with the {model} model lies below all points of {' and '.join(BASELINES)}, at their "
            f"overlaps, in {held} of {len(singles)} cells of links of 1 GPU."
        )


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield "|---" * len(cells) + "|"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _two(point: Point) -> str:
    return f"{point.interruption_h.mean:.1f} / {point.overlap_h.mean:.1f}"


def _of(model: str) -> str:
    return ", wrong model" if model == "wrong" else ""


def _point(study: CellStudy, name: str, model: str, price: float = JUDGED_AT) -> Point:
    return next(each for each in study.points if (each.planner, each.model, each.price) == (name, model, price))


if __name__ == "__main__":
    main()
