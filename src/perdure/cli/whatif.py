"""``perdure whatif``: what other policies would have done to the waiting times, the use and the waste of a cluster."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from perdure.cli.default_command import DefaultCommand, OldValue
from perdure.cli.options import AsJson, Wide
from perdure.cli.study import delay as delay_study
from perdure.cli.study import retry as retry_study
from perdure.cli.trace import CLUSTER_HELP, SkipBad, TraceFormat
from perdure.errors import InputError

Traces = Annotated[
    list[Path] | None, typer.Argument(metavar="TRACE", help="Traces of any known form.", show_default=False)
]
ClusterSpec = Annotated[str | None, typer.Option("--cluster", metavar="SPEC|FILE", help=CLUSTER_HELP)]
Policies = Annotated[
    str | None, typer.Option("--policy", metavar="POLICY,...", help="Policies, or one of your own: mine.py:MyPolicy.")
]
Placement = Annotated[
    str, typer.Option("--placement", metavar="PLACEMENT", help="How gangs find nodes; count: GPUs are only counted.")
]
Retries = Annotated[
    str,
    typer.Option("--retry", metavar="RETRY,...", help="never, always:K, oracle, predicted:TPR,FPR, service:TPR,FPR."),
]
Failures = Annotated[
    str,
    typer.Option("--failures", metavar="M", help="What fails: none, recorded, philly, nodes, or philly+nodes."),
]
Load = Annotated[
    str | None,
    typer.Option("--load", metavar="X", help="Rescale arrivals: the offered load is this fraction of GPU capacity."),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", min=1, max=10_000, help="Run each case with N seeds; 1 if not given."),
]
PreemptionCost = Annotated[
    str | None,
    typer.Option(
        "--preemption-cost",
        metavar="S|GPUS:S,...,S",
        help="Seconds that a preempted job restarts for, by its GPUs; 1:7,8:30,60 if not given, 0 with --compat.",
    ),
]
Compat = Annotated[
    str | None,
    typer.Option("--compat", metavar="tiresias", help="Follow that simulator to the second, its oddities included."),
]
QueueLimits = Annotated[
    str | None,
    typer.Option("--queue-limits", metavar="S,S", help="Service at which las, las-2d and gittins-2d demote a job."),
]
GittinsSamples = Annotated[
    Path | None,
    typer.Option("--gittins-samples", metavar="FILE", help="GPU-seconds of past jobs, one a line, for gittins-2d."),
]
GittinsSplit = Annotated[
    float | None,
    typer.Option(
        "--gittins-split",
        metavar="SHARE",
        help="gittins-2d learns from the jobs that ended in this first share of the time; later ones are compared.",
    ),
]
Quotas = Annotated[
    str | None,
    typer.Option(
        "--vc-quota", metavar="VC=N,...|FILE", help="GPUs of each virtual cluster; by demand in the trace if not given."
    ),
]
JobsOut = Annotated[
    Path | None, typer.Option("--jobs-out", metavar="FILE", help="Write each job's start and end; .csv or .parquet.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write a page with pictures, and the pictures, into this folder."),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers", metavar="N|ADDRESS", help="Processes, dask://HOST:PORT, or slurm:JOBS; a few if not given."
    ),
]
SlurmConf = Annotated[
    Path | None,
    typer.Option(
        "--slurm-conf", metavar="FILE", help="For slurm: this site's slurm.conf; its nodes without --cluster."
    ),
]
ReplayErrors = Annotated[
    bool, typer.Option("--replay-error", help="Hold the waits of each run against those that the trace recorded.")
]


class WhatIfCommands(DefaultCommand):
    """`compare` is meant where no command is named."""

    default = "compare"
    older: ClassVar[Mapping[str, tuple[str, OldValue]]] = {
        "--again": ("again", OldValue.FIRST),
        "--profiles": ("elastic", OldValue.FIRST),
        "--study": ("", OldValue.NAMES),
    }


app = typer.Typer(cls=WhatIfCommands)
app.command("retry", hidden=True)(retry_study)  # as they were spelt before `perdure study`
app.command("delay", hidden=True)(delay_study)


@app.callback()
def whatif() -> None:
    """Replay traces on a cluster under scheduling policies, and compare the results.

    perdure whatif TRACE compares policies; the commands below repeat a comparison, or replay jobs that can change their
    GPUs.

    Exit codes: 0 all runs are done, 2 usage or bad input.
    """


@app.command("compare")
def compare(
    traces: Traces = None,
    cluster: ClusterSpec = None,
    policy: Policies = None,
    placement: Placement = "count",
    retry: Retries = "recorded",
    failures: Failures = "recorded",
    load: Load = None,
    seeds: Seeds = None,
    preemption_cost: PreemptionCost = None,
    compat: Compat = None,
    queue_limits: QueueLimits = None,
    gittins_samples: GittinsSamples = None,
    gittins_split: GittinsSplit = None,
    vc_quota: Quotas = None,
    slurm_conf: SlurmConf = None,
    replay_error: ReplayErrors = False,
    format: TraceFormat = None,
    skip_bad: SkipBad = False,
    jobs_out: JobsOut = None,
    out: Out = None,
    workers: Workers = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Replay traces under each policy, and compare the policies with the first one.

    Exit codes: 0 all runs are done, 2 usage or bad input.
    """
    given = {"a trace": traces, "--cluster (or --slurm-conf)": cluster or slurm_conf, "--policy": policy}
    if missing := [name for name, value in given.items() if not value]:
        raise InputError("whatif", f"give {' and '.join(missing)}", "See perdure whatif compare -h")
    words = {
        "traces": traces, "cluster": cluster, "policy": policy, "placement": placement, "retry": retry,
        "failures": failures, "load": load, "seeds": seeds, "preemption_cost": preemption_cost, "compat": compat,
        "queue_limits": queue_limits, "gittins_samples": gittins_samples, "gittins_split": gittins_split,
        "vc_quota": vc_quota, "slurm_conf": slurm_conf, "format": format, "skip_bad": skip_bad,
    }  # fmt: skip
    return _compare(words, replay_error, jobs_out, out, workers, as_json, wide=wide)


@app.command("again")
def again(
    figures: Annotated[Path, typer.Argument(metavar="FILE", help="A figures.json that --out wrote.")],
    replay_error: ReplayErrors = False,
    jobs_out: JobsOut = None,
    out: Out = None,
    workers: Workers = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Make the comparison of a figures.json again, if no input has changed.

    Exit codes: 0 all runs are done, 2 usage or bad input.
    """
    from perdure.cli.comparison_options import words_of_manifest

    return _compare(words_of_manifest(figures), replay_error, jobs_out, out, workers, as_json, wide=wide)


@app.command("elastic")
def elastic(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[DIR] TRACE",
            help="Measured steps of applications, and jobs that name one; or any trace, whose jobs keep their GPUs.",
        ),
    ],
    cluster: Annotated[str, typer.Option("--cluster", metavar="SPEC|FILE", help=CLUSTER_HELP)],
    policy: Annotated[
        str, typer.Option("--policy", metavar="POLICY,...", help="Policies that plan, such as sia or gavel-las.")
    ],
    retry: Annotated[str, typer.Option("--retry", metavar="RETRY", help="recorded, never, or always:K.")] = "recorded",
    skip_bad: SkipBad = False,
    out: Out = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Replay jobs that can change their GPUs under policies that choose types, GPUs and batches.

    Without a folder of profiles, the jobs of a trace of any form run for their recorded time on the GPUs that they had,
    whichever GPU type a policy gives them.

    Exit codes: 0 all runs are done, 2 usage or bad input.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: threads that wait cost five times the time
    from perdure.cli.elastic import compare_elastic
    from perdure.cli.simulated import names_of

    _garbage_may_come()
    if len(paths) > 2:
        raise InputError("whatif elastic", f"{len(paths)} paths are given", "Give a folder of profiles and one trace")
    trace, profiles = paths[-1], None if len(paths) == 1 else paths[0]
    return compare_elastic(
        trace, profiles, cluster, names_of("--policy", policy), retry, skip_bad, out, as_json, wide=wide
    )


def _garbage_may_come() -> None:
    """Look for garbage from now on, among what comes; `perdure.cli.main` has put it off while all was loaded."""
    gc.freeze()
    gc.enable()


def _compare(
    words: Mapping[str, Any],
    replay_error: bool,
    jobs_out: Path | None,
    out: Path | None,
    workers: str | None,
    as_json: bool,
    *,
    wide: bool,
) -> int:
    from perdure.cli.comparison import compare as run
    from perdure.cli.comparison_options import comparison_options

    _garbage_may_come()
    run(comparison_options(words, replay_error, jobs_out, out, workers), as_json, wide=wide)
    return 0
