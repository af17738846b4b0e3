"""A comparison of policies, from the reading of the traces to the table, the files and the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.cli.jobs_out import check_jobs_out, write_jobs
from perdure.cli.output import print_json, print_table
from perdure.cli.progress import progress
from perdure.cli.simulated import cluster_named, read_fitting, tell_of
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.sweep import Run, Setting, at_load, cases, check_names, sweep
from perdure.traces.trace import Trace

_WORTH_A_PROCESS = 20_000  # jobs of a run: fewer are done before a process has begun
_MAX_SPANS = 50_000  # jobs of a trace: of more, each stretch of running is not kept
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_FIGURES = ("JOBS", "JCT", "P50", "P99", "WAIT", "P99", "MAKESPAN", "USED", "GOODPUT", "WASTED", "PASSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user asked for, in his words where they are names."""

    traces: Sequence[Path]
    cluster: str
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
    workers: int | None


def compare(asked: Asked, as_json: bool) -> None:
    """Run every case, write what is to be written, and print the figures."""
    if asked.jobs_out is not None:
        check_jobs_out(asked.jobs_out)
    cluster = cluster_named(asked.cluster)
    keep = asked.jobs_out is not None or asked.out is not None
    wanted = cases(len(asked.traces), asked.policies, asked.retries, asked.seeds)
    check_names(Setting(cluster, asked.placement, asked.options, asked.failures), wanted)
    found = [read_fitting(path, asked.format, asked.skip_bad, cluster) for path in asked.traces]
    tables = [trace.table if asked.load is None else at_load(trace.table, cluster, asked.load) for trace in found]
    spans = asked.out is not None and max(map(len, tables)) <= _MAX_SPANS
    setting = Setting(cluster, asked.placement, asked.options, asked.failures, keep, spans)
    with progress(len(wanted)) as tell:
        runs = sweep(tables, setting, wanted, asked.workers or _fitting_processes(found), tell)
    for path, trace in zip(asked.traces, found, strict=True):
        tell_of(trace, path)
    if asked.jobs_out is not None:
        write_jobs(asked.jobs_out, asked.traces, tables, runs)
    if asked.out is not None:
        from perdure.simulation.report import write_report

        write_report(asked.out, _facts(asked), [str(path) for path in asked.traces], tables, runs)
    _print_runs(asked.traces, runs, as_json)


def _fitting_processes(found: Sequence[Trace]) -> int:
    if max(len(trace.table) for trace in found) < _WORTH_A_PROCESS:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _facts(asked: Asked) -> dict[str, str]:
    came = "as recorded" if asked.load is None else f"{asked.load:g}"
    return {"cluster": asked.cluster, "placement": asked.placement, "failures": asked.failures, "load": came}


def _print_runs(traces: Sequence[Path], runs: Sequence[Run], as_json: bool) -> None:
    """One run a row. The table leaves out what is the same in all; JSON names the trace where there are several."""
    names = [{"trace": str(traces[run.case.trace])} if len(traces) > 1 else {} for run in runs]
    if as_json:
        print_json("whatif", 1, runs=[{**name, **run.to_json()} for name, run in zip(names, runs, strict=True)])
        return
    telling = [(traces[run.case.trace].name, run.case.retry, run.case.seed) for run in runs]
    vary = [place for place, values in enumerate(zip(*telling, strict=True)) if len(set(values)) > 1]
    columns = ("POLICY", *(("TRACE", "RETRY", "SEED")[place] for place in vary), *_FIGURES)
    rows = (
        (run.case.policy, *(told[place] for place in vary), *_figures(run))
        for told, run in zip(telling, runs, strict=True)
    )
    print_table(columns, rows, whole=columns)


def _figures(run: Run) -> Iterator[object]:
    found = run.metrics
    yield found.jobs
    for seconds in (found.jct_s.mean, found.jct_s.p50, found.jct_s.p99, found.wait_s.mean, found.wait_s.p99):
        yield _span(seconds)
    yield _span(found.makespan_s)
    yield from (f"{found.utilisation:.1%}", f"{found.goodput:.1%}")
    yield from (f"{found.wasted_gpu_h:.0f} GPU h", f"{found.success_rate:.1%}")


def _span(seconds: float) -> str:
    """A length of time in the largest unit of which it has one."""
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.0f} s"
