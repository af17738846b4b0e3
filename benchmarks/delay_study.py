"""How the causes of delay move with the load, the quotas, the placement and the reading of a used quota.

Run: python benchmarks/delay_study.py [N_JOBS] [SEEDS]. Prints Markdown with intervals at 95 % over the seeds; more
than half an hour at the defaults.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from perdure.studies.delay import PUBLISHED, DelayStudy, delay
from perdure.studies.estimate import Estimate

N_JOBS, SEEDS = 60_000, 10
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "the study": {},
    **{f"load {load:g}": {"load": load} for load in (0.55, 0.75, 0.9)},
    **{f"quotas {slack:g} times the demand": {"slack": slack} for slack in (0.75, 1.25, 1.5)},
    "a quota is used up where a gang lacks some of it": {"whole_gang": True},
    "the fullest racks and nodes first": {"placement": "ladder"},
    "locality relaxed after 30 min a rung": {"placement": "spread-ladder:1800"},
    "no locality asked for": {"placement": "best-fit"},
}
SIZES = ("2-4", "5-8", ">8")
COLUMNS = ("setting", "GPUs in use", "nodes in use", "free at two thirds", "wait, min", "of tries (95 %)", "of jobs",
           "of seconds", "scattered")  # fmt: skip


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    n_jobs, seeds = (*numbers, *(N_JOBS, SEEDS)[len(numbers) :])
    began = time.process_time()
    print(f"Made by `python benchmarks/delay_study.py {n_jobs} {seeds}`: {n_jobs} drawn jobs, {seeds} seeds.")
    print(f"Shares are those of jobs on {', '.join(SIZES)} GPUs, in %.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name, changes in SETTINGS.items():
        print(row(name, delay(n_jobs, seeds=seeds, **changes)), flush=True)
    told = PUBLISHED
    nodes, free = told["nodes_in_use"], told["free_nodes_at_two_thirds"]
    tries = triple(told["fragmentation_tries"])
    print(f"| published | | {nodes:.0%} | < {free:.1%} | {told['wait_s']['mean'] / 60:.0f} | {tries} | | | |")
    print(f"\nIn {time.process_time() - began:.0f} s of one core.")


def row(name: str, study: DelayStudy) -> str:
    use = study.gpus_in_use, study.nodes_in_use
    counts = ("fragmentation_jobs", "fragmentation_seconds", "scattered")
    by_size = {figures.gpus: figures for figures in study.figures}
    shares = (triple({size: getattr(by_size[size], count).mean for size in SIZES}) for count in counts)
    tries = " / ".join(with_interval(by_size[size].fragmentation_tries, 100) for size in SIZES)
    free, wait = study.free_nodes_at_two_thirds, with_interval(study.wait_s, 1 / 60)
    cells = (name, *(f"{part.mean:.0%}" for part in use), f"{free.mean:.1%}", wait, tries, *shares)
    return f"| {' | '.join(cells)} |"


def with_interval(found: Estimate, unit: float) -> str:
    """A mean and its interval, each times `unit`: "48 (36-59)"."""
    mean, low, high = (f"{unit * each:.0f}" for each in (found.mean, found.low, found.high))
    return f"{mean} ({low}-{high})"


def triple(shares: Mapping[str, float]) -> str:
    return " / ".join(f"{100 * shares[size]:.0f}" for size in SIZES)


if __name__ == "__main__":
    main()
