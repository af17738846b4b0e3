"""How drawn traces compare with what is published of Philly, and how far both are from Helios.

Published, of Philly: M. Jeon et al., USENIX ATC 2019 (endings, failed trials, GPU time), and the job list that the
simulators of Pollux and Sia were given, to which the generator is fitted (sizes, run times, arrivals, virtual
clusters); the summary of the Acme trace (Q. Hu et al., NSDI 2024) counts the log's rows otherwise. Of Helios: there.

Run: python benchmarks/trace_statistics.py [N_JOBS] [SEEDS]. Prints Markdown; seconds at the defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable, TableEnding
from perdure.traces.generate import generate

N_JOBS, SEEDS = 82_247, 5
MACHINES, LOAD = "321x2+231x8", 590 / 2490  # GPUs in use in the mean if all jobs of the list start at once
DAY_S = 86_400.0
SIZES = {"1": (1, 1), "2-4": (2, 4), "8": (5, 8), ">8": (9, 10**6)}
PUBLISHED: Mapping[str, tuple[str, str, str]] = {  # of Philly; of the same by Acme's count; of Helios
    "jobs on 1 / 2-4 / 8 / >8 GPUs, %": ("93.2 / 4.5 / 2.0 / 0.35", "", ""),
    "their GPU time, %": ("18.1 / 19.9 / 48.4 / 13.6", "", ""),
    "their median run time, s": ("1,117 / 367 / 23,684 / 21,137", "", ""),
    "their run time at quantile 0.9, thousand s": ("8.5 / 166 / 352 / 248", "", ""),
    "run time at 0.05 / 0.25 / 0.5 / 0.75, s": ("48 / 115 / 1,144 / 2,932", "", ""),
    "run time at 0.9 / 0.95 / 0.99, s": ("11,265 / 43,646 / 254,758", "", ""),
    "longer than a week, %": ("0.29", "", ""),
    "GPUs of a job in the mean": ("", "1.93", "3.72"),
    "run time with failures, mean / median, s": ("", "18,006 / 874", "6,652 / 206"),
    "jobs a day, mean / median / most": ("1,123 / 894 / 3,712", "", ""),
    "jobs a day on 1 / more GPUs, spread over mean": ("0.71 / 0.44 from October on", "", ""),
    "between arrivals, median, s": ("8", "", ""),
    "between arrivals, spread over mean": ("15; 2.6 from October on", "", ""),
    "busiest over quietest hour of the day": ("3.3", "", ""),
    "GPUs in use if all start at once, mean / most": ("590 / 1,243", "", ""),
    "their spread over mean": ("0.21 from October on", "", ""),
    "jobs of the four busiest virtual clusters, %": ("50.1 / 19.6 / 12.1 / 9.0", "", ""),
    "GPU time of the three largest, %": ("26.2 / 16.9 / 12.9", "", ""),
    "passed / killed / failed, % of the jobs": ("69.3 / 13.5 / 17.2", "60.4 / 9.0 / 30.5", "62.4 / 22.1 / 15.5"),
    "passed / killed / failed, % of the GPU time": ("44.5 / 37.7 / 17.8", "32.1 / 29.4 / 38.6", "51.3 / 39.4 / 9.3"),
    "failed trials a job": ("0.413", "", ""),
}


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    n_jobs, seeds = (*numbers, *(N_JOBS, SEEDS)[len(numbers) :])
    print(f"Made by `python benchmarks/trace_statistics.py {n_jobs} {seeds}`: means over {seeds} drawn traces.\n")
    print("| | Philly | by Acme's count | Helios | drawn |\n|---|---|---|---|---|")
    drawn: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(seeds):
        cluster = Cluster.parse(MACHINES)
        plain, failing = (
            generate(n_jobs, cluster, LOAD, Generator(Philox(key=[seed, 0])), failures) for failures in (False, True)
        )
        for name, figures in [*of_jobs(plain), *of_arrivals(plain), *of_clusters(plain), *of_endings(failing)]:
            drawn.setdefault(name, []).append(figures)
    for name, published in PUBLISHED.items():
        print(f"| {name} | {' | '.join(published)} | {' / '.join(map(short, np.mean(drawn[name], axis=0)))} |")


def of_jobs(jobs: JobTable) -> Iterator[tuple[str, tuple[float, ...]]]:
    service = jobs.gpus * jobs.duration_s
    rows = [(jobs.gpus >= least) & (jobs.gpus <= most) for least, most in SIZES.values()]
    yield "jobs on 1 / 2-4 / 8 / >8 GPUs, %", tuple(100 * each.mean() for each in rows)
    yield "their GPU time, %", tuple(100 * service[each].sum() / service.sum() for each in rows)
    yield "their median run time, s", tuple(np.median(jobs.duration_s[each]) for each in rows)
    yield (
        "their run time at quantile 0.9, thousand s",
        tuple(np.quantile(jobs.duration_s[each], 0.9) / 1e3 for each in rows),
    )
    yield "run time at 0.05 / 0.25 / 0.5 / 0.75, s", tuple(np.quantile(jobs.duration_s, [0.05, 0.25, 0.5, 0.75]))
    yield "run time at 0.9 / 0.95 / 0.99, s", tuple(np.quantile(jobs.duration_s, [0.9, 0.95, 0.99]))
    yield "longer than a week, %", (100 * (jobs.duration_s > 7 * DAY_S).mean(),)
    yield "GPUs of a job in the mean", (jobs.gpus.mean(),)


def of_arrivals(jobs: JobTable) -> Iterator[tuple[str, tuple[float, ...]]]:
    gaps = np.diff(jobs.submit_s)
    day = (jobs.submit_s // DAY_S).astype(int)
    a_day, narrow, wide = (
        np.bincount(day[rows])[:-1] for rows in (jobs.gpus > 0, jobs.gpus == 1, jobs.gpus > 1)
    )  # the last one is not whole
    by_hour = np.bincount((jobs.submit_s % DAY_S // 3600).astype(int), minlength=24)
    yield "jobs a day, mean / median / most", (a_day.mean(), float(np.median(a_day)), a_day.max())
    yield "between arrivals, median, s", (float(np.median(gaps)),)
    yield "between arrivals, spread over mean", (spread(gaps),)
    yield "jobs a day on 1 / more GPUs, spread over mean", (spread(narrow), spread(wide))
    yield "busiest over quietest hour of the day", (by_hour.max() / by_hour.min(),)
    used = in_use(jobs)
    yield "GPUs in use if all start at once, mean / most", (used.mean(), used.max())
    yield "their spread over mean", (spread(used),)


def in_use(jobs: JobTable) -> NDArray[np.int64]:
    """GPUs in use each ten minutes after the first two weeks, if every job starts at its submit."""
    edges = np.concatenate([jobs.submit_s, jobs.submit_s + jobs.duration_s])
    order = np.argsort(edges, kind="stable")
    held = np.cumsum(np.concatenate([jobs.gpus, -jobs.gpus])[order])
    at_s = np.arange(14 * DAY_S, jobs.submit_s[-1], 600.0)
    return held[np.searchsorted(edges[order], at_s, side="right") - 1]


def spread(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    return float(values.std() / values.mean())


def of_clusters(jobs: JobTable) -> Iterator[tuple[str, tuple[float, ...]]]:
    _, group = np.unique(jobs.vc, return_inverse=True)
    counts, service = np.bincount(group), np.bincount(group, jobs.gpus * jobs.duration_s)
    yield "jobs of the four busiest virtual clusters, %", tuple(100 * np.sort(counts)[::-1][:4] / len(jobs))
    yield "GPU time of the three largest, %", tuple(100 * np.sort(service)[::-1][:3] / service.sum())


def of_endings(jobs: JobTable) -> Iterator[tuple[str, tuple[float, ...]]]:
    assert jobs.attempts is not None
    ways = [jobs.ending == ending for ending in (TableEnding.PASSED, TableEnding.KILLED, TableEnding.FAILED)]
    service = jobs.gpus * jobs.duration_s
    yield "run time with failures, mean / median, s", (jobs.duration_s.mean(), float(np.median(jobs.duration_s)))
    yield "passed / killed / failed, % of the jobs", tuple(100 * way.mean() for way in ways)
    yield "passed / killed / failed, % of the GPU time", tuple(100 * service[way].sum() / service.sum() for way in ways)
    yield "failed trials a job", (((~jobs.attempts.passed).sum() - ways[1].sum()) / len(jobs),)


def short(figure: float) -> str:
    """Three digits, or the whole number where it has more."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


if __name__ == "__main__":
    main()
