"""Agents that learn by reinforcement, next to the default planner: python -m benchmarks.succession_agents TRACE

TRACE is one of those of `benchmarks.succession`. It goes through its clusters; links run for 48 hours with 1 GPU. Each
agent learns for `--steps` steps, from the time before that in which it is measured. With `--out` their part of that
report is replaced. Needs the extra ``rl``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.succession import PLANS, SHAPES, read_cell
from benchmarks.succession_chains import replaced
from perdure.cli.study_successors import remembering
from perdure.studies import successors
from perdure.studies.successors import JUDGED_AT, Interval, StudyOptions, study_cell
from perdure.succession.planners.agents.agent import SuccessionAgent
from perdure.succession.planners.registry import AGENTS, DEFAULT, planner_named
from perdure.succession.protocol import Decision, Planner, TrainingCase, View

HEAD = "## Agents that learn by reinforcement"
PLANNERS = ("reactive", DEFAULT, *AGENTS)
NOTES = """\
With 1 GPU a link, at a price of overlap of 0.25, one seed: an agent that learns with another one may do better or worse
than its interval tells. *dqn* and *gradient* (proximal policy optimization) are of Stable-Baselines3, each with a
multilayer perceptron and with a small transformer. Seconds are of the processor, while others had work for it:
*learned* in all, *decided* each time, without torch.
"""


@dataclass(slots=True)
class Clocked:
    """A planner, and how long it took to learn and to decide."""

    its: Planner
    learned_s: float = 0.0
    decided_s: float = 0.0
    decisions: int = 0

    @property
    def name(self) -> str:
        return self.its.name

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> Clocked:
        began = time.process_time()
        if isinstance(self.its, SuccessionAgent):
            self.its = self.its.train(lessons, rng)
        self.learned_s = time.process_time() - began
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def with_arrays(self, arrays: object) -> Clocked:
        return self

    def decide(self, view: View) -> Decision:
        began = time.process_time()
        decision = self.its.decide(view)
        self.decided_s += time.process_time() - began
        self.decisions += 1
        return decision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gpus", default="", help="some of the clusters, as 315,290")
    parser.add_argument("--steps", type=int, default=40_000, help="that each agent learns for")
    parser.add_argument("--models", default="true,wrong", help="of the scheduler")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    name = next(each for each in PLANS if asked.trace.name.startswith(each))
    columns = ("cell", "planner", "interruption, h", "overlap, h", "without interruption", "of the gap")
    lines = [f"| {' | '.join((*columns, 'learned, s', 'decided, ms'))} |", "|---" * 8 + "|"]
    for model in asked.models.split(","):
        for gpus in [int(each) for each in asked.gpus.split(",") if each] or PLANS[name][1]:
            began = time.process_time()
            for line in rows(asked, name, gpus, model):
                lines.append(line)
                print(line, flush=True)
            print(f"{name} {gpus}: {time.process_time() - began:.0f} s", flush=True)
            text = "\n".join([HEAD, "", command(asked), "", NOTES, *lines]) + "\n"
            if asked.out is not None:
                asked.out.write_text(replaced(asked.out.read_text(), text))


def rows(asked: argparse.Namespace, name: str, gpus: int, model: str) -> Iterator[str]:
    """Of one cell under one model of the scheduler."""
    cell = read_cell(asked.trace, name, gpus, SHAPES[:1], PLANS[name][2])
    made: dict[str, Clocked] = {}

    def clocked(named: str) -> Clocked:
        planner = planner_named(named)
        planner = replace(planner, steps=asked.steps) if isinstance(planner, SuccessionAgent) else planner
        return made.setdefault(named, Clocked(planner))

    successors.planner_named = clocked  # type: ignore[assignment, attr-defined]  # the study takes planners by their names, at their defaults
    planners = PLANNERS if model == "true" else PLANNERS[1:]
    study = study_cell(cell, 0, StudyOptions(planners, (model,), (JUDGED_AT,)), remembering(asked.cache))
    if model == "true":
        interruption_h, overlap_h = study.oracle_h[f"{JUDGED_AT:g}"]
        yield f"| {study.name} | oracle | {interruption_h:.1f} | {overlap_h:.1f} | | 100% | | |"
    for each in study.points:
        clock = made[each.planner]
        planner = f"{each.planner}{', wrong model' if model == 'wrong' else ''}"
        gap = f"{each.gap.mean:.0%} ({each.gap.low:.0%} to {each.gap.high:.0%})"
        cells = (study.name, planner, _told(each.interruption_h), _told(each.overlap_h), f"{each.seamless:.0%}", gap)
        times = (f"{clock.learned_s:.0f}", f"{1000 * clock.decided_s / clock.decisions:.2f}")
        yield f"| {' | '.join((*cells, *times))} |"


def _told(each: Interval) -> str:
    return f"{each.mean:.1f} ({each.low:.1f} to {each.high:.1f})"


def command(asked: argparse.Namespace) -> str:
    words = [asked.trace.name, *([f"--gpus {asked.gpus}"] if asked.gpus else []), f"--steps {asked.steps}"]
    words += [f"--models {asked.models}", "--out benchmarks/succession.md"]
    return f"`python -m benchmarks.succession_agents {' '.join(words)}`"


if __name__ == "__main__":
    main()
