"""``perdure whatif``: what other policies would have done to the waiting times, the use and the waste of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson
from perdure.cli.output import print_json, print_table
from perdure.cli.trace import ClusterSpec, SkipBad, TraceFormat
from perdure.errors import ConfigError, InputError

if TYPE_CHECKING:
    from perdure.scheduling.policies import PolicyOptions
    from perdure.simulation.sweep import Run
    from perdure.traces.trace import Trace

_WORTH_A_PROCESS = 20_000  # jobs of a run: fewer are done before a process has begun
_MAX_SPANS = 50_000  # jobs of a trace: of more, each stretch of running is not kept
_MAX_PROCESSES = 1024
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_FIGURES = ("JOBS", "JCT", "P50", "P99", "WAIT", "P99", "MAKESPAN", "USED", "GOODPUT", "WASTED", "PASSED")


def whatif(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces of any known form.")],
    cluster: ClusterSpec,
    policy: Annotated[str, typer.Option(metavar="A,B,...", help="Policies, or one of your own: mine.py:MyPolicy.")],
    placement: Annotated[
        str, typer.Option(metavar="P", help="How gangs find nodes; count: GPUs are only counted.")
    ] = "count",
    retry: Annotated[
        str, typer.Option(metavar="R,...", help="never, always:K, oracle, predicted:TPR,FPR, service:TPR,FPR.")
    ] = "recorded",
    failures: Annotated[
        str, typer.Option(metavar="M", help="What fails: none, recorded, philly, nodes, or philly+nodes.")
    ] = "recorded",
    load: Annotated[
        float | None, typer.Option(help="Let jobs come so that they ask for this share of the GPU time.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Run each case with so many seeds.")] = 1,
    compat: Annotated[
        str | None, typer.Option(metavar="tiresias", help="Follow that simulator to the second, its oddities included.")
    ] = None,
    queue_limits: Annotated[
        str | None, typer.Option(metavar="S,S", help="Service at which las, las-2d and gittins-2d demote a job.")
    ] = None,
    gittins_samples: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU-seconds of past jobs, one a line, for gittins-2d.")
    ] = None,
    format: TraceFormat = None,
    skip_bad: SkipBad = False,
    jobs_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each job's start and end; .csv or .parquet.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a page with pictures, and the pictures, into this folder.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N", help="Processes; not given: one a core where jobs are many.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Replay traces on a cluster under scheduling policies, and compare what became of the jobs.

    \b
    Exit codes:
      0  all runs are done
      2  usage or bad input
    """
    from perdure.cli.jobs_out import check_jobs_out, write_jobs
    from perdure.cli.simulated import cluster_named, read_fitting, tell_of
    from perdure.simulation.sweep import Setting, at_load, cases, check_names, sweep

    processes = None if workers is None else _processes(workers)
    if jobs_out is not None:
        check_jobs_out(jobs_out)
    nodes = cluster_named(cluster)
    options = _options(compat, queue_limits, gittins_samples)
    setting = Setting(nodes, placement, options, failures, keep=jobs_out is not None or out is not None)
    wanted = cases(len(traces), _names("--policy", policy), _names("--retry", retry), seeds)
    check_names(setting, wanted)
    found = [read_fitting(path, format, skip_bad, nodes) for path in traces]
    spans = out is not None and max(len(trace.table) for trace in found) <= _MAX_SPANS
    setting = replace(setting, spans=spans)
    tables = [trace.table if load is None else at_load(trace.table, nodes, load) for trace in found]
    with _progress(len(wanted)) as tell:
        runs = sweep(tables, setting, wanted, processes or _fitting_processes(found), tell)
    for path, trace in zip(traces, found, strict=True):
        tell_of(trace, path)
    if jobs_out is not None:
        write_jobs(jobs_out, traces, tables, runs)
    if out is not None:
        from perdure.simulation.report import write_report

        came = "as recorded" if load is None else str(load)
        asked = {"cluster": cluster, "placement": placement, "failures": failures, "load": came}
        write_report(out, asked, [str(path) for path in traces], tables, runs)
    _print_runs(traces, runs, as_json)
    return 0


def _names(option: str, text: str) -> list[str]:
    """The names of "fifo,srtf" or "never,predicted:0.9,0.1": a number belongs to the name before it."""
    names: list[str] = []
    for word in map(str.strip, text.split(",")):
        if names and word.replace(".", "", 1).isdecimal():
            names[-1] += f",{word}"
        else:
            names.append(word)
    if not all(names) or len(set(names)) < len(names):
        raise InputError(option, f"{text!r} has an empty name, or one twice", "Write it like fifo,srtf,las-2d")
    return names


def _options(compat: str | None, queue_limits: str | None, gittins_samples: Path | None) -> PolicyOptions:
    from perdure.cli.simulated import numbers, samples
    from perdure.scheduling.las import QUEUE_LIMITS
    from perdure.scheduling.policies import PolicyOptions

    if compat not in (None, "tiresias"):
        raise ConfigError(f"--compat {compat!r}", "no simulator of that name is followed", "Use tiresias")
    return PolicyOptions(
        queue_limits=QUEUE_LIMITS if queue_limits is None else numbers("--queue-limits", queue_limits),
        gittins_samples=() if gittins_samples is None else samples(gittins_samples),
        compat="tiresias" if compat else None,
    )


def _processes(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_PROCESSES:
        raise ConfigError(f"--workers {text!r}", "not a number of processes", "Write a number, such as 4")
    return int(text)


def _fitting_processes(found: Sequence[Trace]) -> int:
    if max(len(trace.table) for trace in found) < _WORTH_A_PROCESS:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[int], None]]:
    """What to call with the number of runs that are done; a person at a terminal sees how long the rest takes."""
    if runs == 1 or not sys.stderr.isatty():
        yield lambda done: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=runs)
        yield lambda done: bar.update(task, completed=done)


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
