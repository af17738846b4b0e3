"""``perdure whatif``: what other policies would have done to the waiting times, the use and the waste of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson
from perdure.cli.trace import CLUSTER_HELP, SkipBad, TraceFormat
from perdure.errors import ConfigError, InputError

if TYPE_CHECKING:
    from perdure.scheduling.policies import PolicyOptions

_MAX_PROCESSES = 1024


def whatif(
    traces: Annotated[
        list[Path] | None, typer.Argument(metavar="TRACE...", help="Traces of any known form.", show_default=False)
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="SPEC|FILE", help=CLUSTER_HELP)] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Policies, or one of your own: mine.py:MyPolicy.")
    ] = None,
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
        str | None, typer.Option(metavar="X", help="Let jobs come so that they ask for this share of the GPU time.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Run each case with so many seeds; 1 if not given.")
    ] = None,
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
    study: Annotated[
        str | None, typer.Option(metavar="retry|delay", help="Instead: a published experiment, on drawn jobs.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Replay traces on a cluster under scheduling policies, and compare what became of the jobs.

    \b
    Exit codes:
      0  all runs are done
      2  usage or bad input
    """
    policies = [] if policy is None else _names("--policy", policy)
    loads = [] if load is None else _loads(load)
    if study is not None and not traces:
        from perdure.cli.study import run_study

        return run_study(study, loads, seeds, policies, cluster, as_json)
    if study is not None or not traces or cluster is None or not policies or len(loads) > 1:
        what = "give a trace, --cluster and --policy, and at most one --load; or --study without a trace"
        raise InputError("whatif", what, "See perdure whatif --help")
    from perdure.cli.comparison import Asked, compare

    asked = Asked(
        traces=traces,
        cluster=cluster,
        policies=policies,
        retries=_names("--retry", retry),
        seeds=seeds or 1,
        placement=placement,
        failures=failures,
        load=loads[0] if loads else None,
        options=_options(compat, queue_limits, gittins_samples),
        format=format,
        skip_bad=skip_bad,
        jobs_out=jobs_out,
        out=out,
        workers=None if workers is None else _processes(workers),
    )
    compare(asked, as_json)
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


def _loads(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--load {text!r}", "not a number", "Write it like 0.8") from None


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
