"""What a comparison of policies prints: three sentences and tables, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import word
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.recorded import AS_IT_WAS
from perdure.simulation.replay_error import ReplayError
from perdure.simulation.seed_means import Interval, SeedMeans, over_seeds
from perdure.simulation.sweep import Run, SweepCase, labels
from perdure.simulation.verdict import PolicyVerdict, length, share_of

FIGURES = (
    word("JOBS", leave=14), word("JCT"), word("P50", leave=7), word("P90", leave=9), word("P95", leave=13),
    word("P99", leave=6), word("WAIT", leave=1), word("P99", leave=10), word("SLOWDOWN", leave=3),
    word("PREEMPTED", leave=5), word("MAKESPAN", leave=15), word("USED", leave=12), word("WINDOW", leave=2),
    word("GOODPUT", leave=11), word("WASTED", leave=8), word("PASSED", leave=4),
)  # fmt: skip
AGAINST_FIRST = word("AGAINST FIRST (95%)"), word("MARK")
"""The change of the mean JCT against the first policy, and whether that is the best."""
ERRORS = (
    word("JOBS OF"), word("JOBS", leave=2), word("RECORDED"), word("SIMULATED"), word("ERROR"), word("WITHIN 2X"),
    word("SAME MINUTE", leave=1),
)  # fmt: skip
"""Median waits, and the median of their differences."""
AGAINST = (
    word("POLICY"), word("JOBS", leave=2), word("WAITS OFF BY"), word("WITHIN 2X"), word("RANKS ALIKE", leave=1),
    word("DAILY USE OFF BY"),
)  # fmt: skip
"""Against the record: median differences of waits, Spearman's correlation, mean differences of the GPU time in use."""
NAMES = (word("POLICY"), word("TRACE"), word("RETRY"))


def print_comparison(found: PolicyComparison, as_json: bool, in_groups: bool, *, wide: bool) -> None:
    """All figures as JSON; or three sentences, a table with the seeds taken together, and how near the record is.

    `in_groups`: with the waits of each run against those recorded.
    """
    if as_json:
        print_json("whatif", 1, **found.to_json(timed=True))
        return
    traces = [Path(trace).name for trace in found.traces]
    for place, verdict in found.verdicts.items():
        of = f"{traces[place]}: " if len(traces) > 1 else ""
        for n, sentence in enumerate(verdict.sentences()):
            print_line(sentence if n else of + sentence)
    if found.verdicts:
        print_line("")
    _print_figures(traces, found, wide=wide)
    for remark in found.remarks():
        print_line(remark)
    if found.was:
        _print_against_record(traces, found, wide=wide)
    if in_groups:
        for run in found.runs:
            if run.error is not None:
                _print_error(run, run.error, wide=wide)


def _print_figures(traces: Sequence[str], found: PolicyComparison, *, wide: bool) -> None:
    runs, was = found.runs, found.was
    everything = [*over_seeds(was), *over_seeds(runs)]
    together = [((each.case.policy, traces[each.case.trace], each.case.retry), each) for each in everything]
    telling = [place for place in (1, 2) if len({names[place] for names, _ in together}) > 1]
    shown = (0, *telling)
    marks = _marks(found.verdicts, [each.case for each in everything])
    rows = (
        (
            *(names[place] for place in shown),
            *figures[:2],
            *marks.get(each.case, ("", ""))[: 2 * bool(found.verdicts)],
            *figures[2:],
        )
        for names, each in together
        for figures in [tuple(_figures(each))]
    )
    columns = (*FIGURES[:2], *(AGAINST_FIRST if found.verdicts else ()), *FIGURES[2:])
    print_table((*(NAMES[place] for place in shown), *columns), rows, wide=wide)
    if len(runs) > len(together) - len(was):
        seeds = len(runs) // (len(together) - len(was))
        print_line(f"Means over {seeds} seeds{_of_intervals(everything)}.")


def _marks(found: Mapping[int, PolicyVerdict], those: Sequence[SweepCase]) -> dict[SweepCase, tuple[str, str]]:
    """Of each case its completion times against those of the first, and whether it is the best."""
    marks: dict[SweepCase, tuple[str, str]] = {}
    for place, verdict in found.items():
        mine = [case for case in those if case.trace == place and case.policy != AS_IT_WAS]
        for n, (case, each) in enumerate(zip(mine, verdict.standings, strict=True)):
            marks[case] = (share_of(each.jct) if n else "", each.mark)
    return marks


def _print_against_record(traces: Sequence[str], found: PolicyComparison, *, wide: bool) -> None:
    """How far each replay, of several seeds the first, is from the record of its trace; and what that means."""
    first = [(run.case, run.error) for run in found.runs if run.case.seed == 0 and run.error is not None]
    print_line("")
    of = [f"{trace}: " if len(traces) > 1 else "" for trace in traces]
    names = labels([case for case, _ in first])
    rows = ((of[case.trace] + name, *error.cells()) for name, (case, error) in zip(names, first, strict=True))
    print_table(AGAINST, rows, wide=wide)
    for place, sentence in found.nearest().items():
        print_line(of[place] + sentence)


def _print_error(run: Run, error: ReplayError, *, wide: bool) -> None:
    """The waits of one run against those recorded: all jobs, then by partition and by size."""
    print_line("")
    print_line(f"{run.case.policy}, held against the recorded waits")
    groups = [("all jobs", error.all)]
    groups += [(f"partition {name}", each) for name, each in error.by_partition.items() if len(error.by_partition) > 1]
    groups += [(f"{name} GPU{'' if name == '1' else 's'}", each) for name, each in error.by_gpus.items()]
    rows = (
        (
            name, each.jobs,
            *map(length, (each.recorded_median_s, each.simulated_median_s, each.median_error_s)),
            f"{each.within_2x:.0%}", f"{each.started_alike:.0%}",
        )
        for name, each in groups
    )  # fmt: skip
    print_table(ERRORS, rows, wide=wide)
    print_line(error.says)


def _of_intervals(found: Sequence[SeedMeans]) -> str:
    if any(low < high for each in found for low, high in (each.jct_interval_s, each.wait_interval_s)):
        return "; in brackets the interval at 95%, by bootstrap"
    return ", which all gave the same"


def _figures(found: SeedMeans) -> Iterator[object]:
    """The cells of one row."""
    yield found.jobs
    yield _between(found.jct_s.mean, found.jct_interval_s)
    yield from map(length, (found.jct_s.p50, found.jct_s.p90, found.jct_s.p95, found.jct_s.p99))
    yield _between(found.wait_s.mean, found.wait_interval_s)
    yield length(found.wait_s.p99)
    yield f"{found.slowdown:.1f}"
    yield found.preemptions
    yield length(found.makespan_s)
    yield from (f"{share:.1%}" for share in (found.utilisation, found.used_in_window, found.goodput))
    yield f"{found.wasted_gpu_h:.0f} GPU h"
    yield f"{found.success_rate:.1%}"


def _between(mean: float, interval: Interval) -> str:
    """A mean, and its interval where seeds differ."""
    low, high = interval
    return length(mean) if length(low) == length(high) else f"{length(mean)} ({length(low)} to {length(high)})"
