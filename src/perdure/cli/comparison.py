"""A comparison of policies, from the reading of the traces to the table, the files and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from statistics import fmean

from numpy.random import Generator, Philox

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.simulated import cluster_named, read_fitting, tell_of, tell_of_compiling
from perdure.cli.table import word
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.scheduling.slurm.conf import SlurmSite
from perdure.simulation.fitting import accepted
from perdure.simulation.foresight import foresight
from perdure.simulation.metrics import Metrics, interval
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.replay_error import ReplayError
from perdure.simulation.sweep import (
    Run,
    Serial,
    Setting,
    SweepExecutor,
    as_it_was,
    at_load,
    cases,
    check_names,
    facts,
    over_seeds,
    sweep,
)
from perdure.traces.trace import Trace

_WORTH_A_PROCESS = 20_000  # jobs of a run: fewer are done before a process has begun
_MAX_SPANS = 50_000  # jobs of a trace: of more, each stretch of running is not kept
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
FIGURES = (
    word("JOBS", leave=9), word("JCT"), word("P50", leave=8), word("P99", leave=7), word("WAIT", leave=1),
    word("P99", leave=6), word("MAKESPAN", leave=10), word("USED", leave=3), word("GOODPUT", leave=5),
    word("WASTED", leave=4), word("PASSED", leave=2),
)  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What a user asked for, in their own words where these are names."""

    traces: Sequence[Path]
    cluster: str | None  # None: the nodes of the slurm.conf
    policies: Sequence[str]
    retries: Sequence[str]
    seeds: int
    placement: str
    failures: str
    load: float | None
    options: PolicyOptions
    format: str | None
    skip_bad: bool
    jobs_out: Path | None
    out: Path | None
    executor: SweepExecutor | None  # None: this process, or one a core where jobs are many
    slurm_conf: Path | None = None
    replay_error: bool = False


def compare(asked: ComparisonOptions, as_json: bool, *, wide: bool = False) -> None:
    """Run every case, write what is to be written, and print the figures."""
    if asked.jobs_out is not None:
        from perdure.cli.jobs_out import check_jobs_out

        check_jobs_out(asked.jobs_out)
    if asked.out is not None and asked.out.exists() and not asked.out.is_dir():
        raise InputError(str(asked.out), "cannot be written (it is not a folder)", "Name a folder that you may write")
    cluster, options, site = _cluster(asked)
    keep = asked.jobs_out is not None or asked.out is not None
    wanted = cases(len(asked.traces), asked.policies, asked.retries, asked.seeds)
    check_names(Setting(cluster, asked.placement, options, asked.failures), wanted)
    with progress(what="reading"):
        found = [read_fitting(path, asked.format, asked.skip_bad, cluster, asked.placement) for path in asked.traces]
    if site is not None and asked.slurm_conf is not None:
        from perdure.cli.slurm_conf import tell_of_partitions

        for path, trace in zip(asked.traces, found, strict=True):
            tell_of_partitions(asked.slurm_conf, site, path, trace.table)
    found = [_accepted(trace, path, cluster, asked, options) for trace, path in zip(found, asked.traces, strict=True)]
    tables = [trace.table if asked.load is None else at_load(trace.table, cluster, asked.load) for trace in found]
    spans = asked.out is not None and max(map(len, tables)) <= _MAX_SPANS
    repeats = len(wanted) // len(asked.policies)
    setting = Setting(cluster, asked.placement, options, asked.failures, keep, spans, repeats)
    if not spans:
        tell_of_compiling(max(map(len, tables)) * repeats, asked.policies, asked.placement)
    with progress(len(wanted) if len(wanted) > 1 else None, "replaying") as tell:
        runs = sweep(tables, setting, wanted, asked.executor or _fitting(found), tell)
    for path, trace in zip(asked.traces, found, strict=True):
        tell_of(trace, path)
    if asked.jobs_out is not None:
        from perdure.cli.jobs_out import write_jobs

        write_jobs(asked.jobs_out, asked.traces, tables, runs)
    known = foresight(tables, asked.policies, options)
    if asked.out is not None:
        from perdure.simulation.report import write_report

        shared = facts(asked.cluster or str(asked.slurm_conf), asked.placement, asked.failures, asked.load)
        if known:
            shared |= {"foresight": "; ".join(known)}
        if site is not None:
            shared |= {"slurm.conf, not modelled": ", ".join(site.unmodelled) or "nothing"}
            shared |= {"slurm.conf, ignored": ", ".join(site.ignored) or "nothing"}
        write_report(asked.out, shared, [str(path) for path in asked.traces], tables, runs)
    if asked.replay_error:
        _must_be_recorded(runs)
    _print_runs(asked.traces, as_it_was(tables, cluster), runs, known, site, as_json, asked.replay_error, wide=wide)


def _cluster(asked: ComparisonOptions) -> tuple[Cluster, PolicyOptions, SlurmSite | None]:
    """The cluster, and the options of policies with what a slurm.conf says; its keys that are left out are told."""
    if asked.slurm_conf is None:
        assert asked.cluster is not None
        return cluster_named(asked.cluster), asked.options, None
    from perdure.cli.slurm_conf import cluster_in, site_in, tell_of_site
    from perdure.scheduling.slurm.conf import on_any_nodes, on_known_nodes

    site = site_in(asked.slurm_conf)
    if asked.cluster is None:
        cluster, site = cluster_in(asked.slurm_conf, site)
    else:
        cluster, site = cluster_named(asked.cluster), on_any_nodes(site)
    tell_of_site(asked.slurm_conf, site)
    if placement_named(asked.placement) is not None:
        site = on_known_nodes(site, len(cluster.gpus))
    return cluster, replace(asked.options, slurm=site.settings), site


def _must_be_recorded(runs: Sequence[Run]) -> None:
    """Raises `InputError` where a trace records no starts."""
    if any(run.error is None for run in runs):
        what = "the trace records no starts, or --load has moved them"
        raise InputError("--replay-error", what, "Use a trace with starts, and omit --load")


def _accepted(trace: Trace, path: Path, cluster: Cluster, asked: ComparisonOptions, options: PolicyOptions) -> Trace:
    """The jobs that each of the policies starts at some time."""
    for name in asked.policies:
        if not is_policy_file(name):
            policy = policy_named(name, options)
            trace = accepted(trace, str(path), cluster, asked.skip_bad, policy, placement_named(asked.placement))
    return trace


def _fitting(found: Sequence[Trace]) -> SweepExecutor:
    if max(len(trace.table) for trace in found) < _WORTH_A_PROCESS:
        return Serial()
    from perdure.cli.workers import default_executor

    return default_executor()


def _print_runs(
    traces: Sequence[Path],
    was: Sequence[Run],
    runs: Sequence[Run],
    known: Sequence[str],
    site: SlurmSite | None,
    as_json: bool,
    in_groups: bool,
    *,
    wide: bool,
) -> None:
    """Every run as JSON, which names the trace where there are several; or a table with the seeds taken together.

    In JSON `details` are the further figures of each run, and `replay_error` how far each is from its trace, in the
    order of the runs; `as_it_was` are the figures of the recorded schedules; `foresight` is what policies knew that no
    scheduler knows; `slurm_conf` are the keys of the file that are left out of account.
    """
    if as_json:
        _print_json(traces, was, runs, known, site)
        return
    everything = {**over_seeds(was), **over_seeds(runs)}
    together = [((case.policy, traces[case.trace].name, case.retry), found) for case, found in everything.items()]
    telling = [place for place in (1, 2) if len({names[place] for names, _ in together}) > 1]
    shown = (0, *telling)
    rows = ((*(names[place] for place in shown), *_figures(found)) for names, found in together)
    print_table((*(NAMES[place] for place in shown), *FIGURES), rows, wide=wide)
    if len(runs) > len(together) - len(was):
        seeds = len(runs) // (len(together) - len(was))
        print_line(f"Means over {seeds} seeds{_of_intervals(found for _, found in together)}.")
    for what in known:
        print_line(f"{what}.")
    if was:
        _print_against_record(traces, runs, wide=wide)
    if in_groups:
        for run in runs:
            if run.error is not None:
                _print_error(run, run.error, wide=wide)


def _print_json(
    traces: Sequence[Path], was: Sequence[Run], runs: Sequence[Run], known: Sequence[str], site: SlurmSite | None
) -> None:
    def told(some: Sequence[Run]) -> list[dict[str, object]]:
        traced = [{"trace": str(traces[run.case.trace])} if len(traces) > 1 else {} for run in some]
        return [{**trace, **run.to_json()} for trace, run in zip(traced, some, strict=True)]

    further: dict[str, object] = {}
    if was:
        further["as_it_was"] = told(was)
        further["replay_error"] = [run.error.to_json() if run.error else None for run in runs]
    if known:
        further["foresight"] = list(known)
    if site is not None:
        further["slurm_conf"] = {"not_modelled": site.unmodelled, "ignored": site.ignored}
    print_json("whatif", 1, runs=told(runs), details=[run.metrics.details() for run in runs], **further)


def _print_against_record(traces: Sequence[Path], runs: Sequence[Run], *, wide: bool) -> None:
    """How far each replay, of several seeds the first, is from the record of its trace; and what that means."""
    first = [(run.case, run.error) for run in runs if run.case.seed == 0 and run.error is not None]
    print_line("")
    print_table(AGAINST, ((case.policy, *_against_record(error)) for case, error in first), wide=wide)
    for place in dict.fromkeys(case.trace for case, _ in first):
        those = [each for each in first if each[0].trace == place]
        case, error = max(those, key=lambda each: each[1].closeness)
        of = f"{traces[place].name}: " if len(traces) > 1 else ""
        print_line(f"{of}{case.policy} is nearest to what was recorded. {error.says}")


def _against_record(error: ReplayError) -> Iterator[object]:
    yield error.all.jobs
    yield _span(error.all.median_error_s)
    yield f"{error.all.within_2x:.0%}"
    yield "" if isnan(error.rank_correlation) else f"{error.rank_correlation:.2f}"
    yield f"{error.use_error:.1%}"


def _print_error(run: Run, error: ReplayError, *, wide: bool) -> None:
    """The waits of one run against those recorded: all jobs, then by partition and by size."""
    print_line("")
    print_line(f"{run.case.policy}, held against the recorded waits")
    groups = [("all jobs", error.all)]
    groups += [(f"partition {name}", each) for name, each in error.by_partition.items() if len(error.by_partition) > 1]
    groups += [(f"{name} GPU{'' if name == '1' else 's'}", each) for name, each in error.by_gpus.items()]
    rows = (
        (
            name, each.jobs, _span(each.recorded_median_s), _span(each.simulated_median_s), _span(each.median_error_s),
            f"{each.within_2x:.0%}", f"{each.started_alike:.0%}",
        )
        for name, each in groups
    )  # fmt: skip
    print_table(ERRORS, rows, wide=wide)
    print_line(error.says)


def _of_intervals(groups: Iterable[Sequence[Metrics]]) -> str:
    if any(len({(each.jct_s.mean, each.wait_s.mean) for each in found}) > 1 for found in groups):
        return "; in brackets the interval at 95%, by bootstrap"
    return ", which all gave the same"


def _figures(found: Sequence[Metrics]) -> Iterator[object]:
    """The cells of one row; of several seeds their means."""
    yield found[0].jobs
    yield _between([each.jct_s.mean for each in found])
    yield from (_span(fmean(values)) for values in ([m.jct_s.p50 for m in found], [m.jct_s.p99 for m in found]))
    yield _between([each.wait_s.mean for each in found])
    yield from (_span(fmean(values)) for values in ([m.wait_s.p99 for m in found], [m.makespan_s for m in found]))
    yield from (f"{fmean(shares):.1%}" for shares in ([m.utilisation for m in found], [m.goodput for m in found]))
    yield f"{fmean(m.wasted_gpu_h for m in found):.0f} GPU h"
    yield f"{fmean(m.success_rate for m in found):.1%}"


def _between(seconds: Sequence[float]) -> str:
    """A mean, and its interval where there are several values that differ."""
    if len(set(seconds)) == 1:
        return _span(seconds[0])
    low, high = interval(seconds, Generator(Philox(key=0)))
    return f"{_span(fmean(seconds))} ({_span(low)} to {_span(high)})"


def _span(seconds: float) -> str:
    """A length of time in the largest unit of which it has one."""
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.0f} s"
