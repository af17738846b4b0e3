"""``perdure study ...``: published experiments again, and planners of successors measured on a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.options import AsJson, Wide
from perdure.cli.picture_file import PictureFile, form_of
from perdure.cli.trace import CLUSTER_HELP

Seeds = Annotated[int | None, typer.Option(metavar="N", min=1, max=10_000, help="Seeds; ten if not given.")]
Workers = Annotated[str | None, typer.Option(metavar="N", help="Processes; a few if not given.")]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Vary what is not published, and mark where the published figures lie.")
]
Minutes = Annotated[float, typer.Option(metavar="MINUTES", help="Down by a failure of this kind.")]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def study() -> None:
    """Repeat published experiments, and measure planners of successors on a trace.

    Exit codes: 0 done, 2 usage or bad input.
    """


@app.command("retry")
def retry(
    load: Annotated[str | None, typer.Option(metavar="X,...", help="Offered load, as a share of capacity.")] = None,
    policy: Annotated[str | None, typer.Option(metavar="POLICY,...", help="Scheduling policies.")] = None,
    seeds: Seeds = None,
    workers: Workers = None,
    sensitivity: Sensitivity = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Measure what a classifier of failures saves against retrying every failed job, next to an oracle (Sibylla).

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.simulated import loads_of, names_of
    from perdure.cli.study_replays import repeat_retry
    from perdure.cli.study_sensitivity import repeat_sensitivity

    loads = [] if load is None else loads_of(load)
    policies = [] if policy is None else names_of("--policy", policy)
    if sensitivity:
        return repeat_sensitivity("retry", loads, {"--policy": policy}, seeds, workers, as_json, wide=wide)
    return repeat_retry(loads, policies, seeds, workers, as_json, wide=wide)


@app.command("delay")
def delay(
    load: Annotated[str | None, typer.Option(metavar="X", help="Offered load, as a share of capacity.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="SPEC|FILE", help=CLUSTER_HELP)] = None,
    seeds: Seeds = None,
    workers: Workers = None,
    sensitivity: Sensitivity = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Measure how much of the waiting comes of scattered GPUs, and how much of fair shares (Philly).

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.simulated import loads_of
    from perdure.cli.study_replays import repeat_delay
    from perdure.cli.study_sensitivity import repeat_sensitivity

    loads = [] if load is None else loads_of(load)
    if sensitivity:
        return repeat_sensitivity("delay", loads, {"--cluster": cluster}, seeds, workers, as_json, wide=wide)
    return repeat_delay(loads, cluster, seeds, workers, as_json, wide=wide)


@app.command("tor")
def tor(
    failing_share: Annotated[float, typer.Option(metavar="SHARE", help="ToRs that fail in a month.")] = 0.001,
    soft_share: Annotated[float, typer.Option(metavar="SHARE", help="Failures that a reboot fixes.")] = 0.9,
    soft_min: Minutes = 20.0,
    hard_min: Minutes = 120.0,
    out: PictureFile = None,
    as_json: AsJson = False,
) -> int:
    """Say how available a machine can be at best that hangs on one top-of-rack switch.

    Exit codes: 0 computed, 2 usage or bad input.
    """
    from perdure.cli.study_availability import tor as run

    run(failing_share, soft_share, soft_min, hard_min, out, form_of(out), as_json)
    return 0


@app.command("colocation")
def colocation(
    days: Annotated[Path, typer.Argument(metavar="DAYS", help="CSV: day,hops,units,failures at two distances.")],
    out: PictureFile = None,
    as_json: AsJson = False,
) -> int:
    """Compare the failures of machines near to their storage with those far from it.

    Exit codes: 0 compared, 2 usage or bad input.
    """
    from perdure.cli.study_availability import colocation as run

    run(days, out, form_of(out), as_json)
    return 0


@app.command("successors")
def successors(
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A trace of 21 days or more: SWF, CSV, Parquet or sacct's. The default is this cluster's accounting.",
        ),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="N,...",
            help="GPUs, or processors, of the cluster: a cell each; without --trace those of the partition.",
        ),
    ] = "",
    partition: Annotated[
        str, typer.Option(metavar="NAME", help="Whose past is taken, without --trace; the default one if not given.")
    ] = "",
    link_gpus: Annotated[str, typer.Option(metavar="N,...", help="GPUs of each link of a chain: a cell each.")] = "1",
    planners: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which planners; all that are installed if not given.")
    ] = None,
    models: Annotated[
        str, typer.Option(metavar="NAME,...", help="Models of the scheduler that what-if runs use: true, wrong.")
    ] = "true,wrong",
    days: Annotated[str | None, typer.Option(metavar="FROM-TO", help="Days of the trace; all if not given.")] = None,
    limit: Annotated[float, typer.Option(metavar="H", min=1, max=240, help="Walltime of each link, in hours.")] = 48.0,
    every: Annotated[float, typer.Option(metavar="H", min=0.1, max=12, help="Hours between decisions.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same figures.")] = 0,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Train planners that learn on all of the time too, and write them there."),
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Measure when planners submit the successor of a link, on a trace that goes through a simulated Slurm.

    For each planner and price of overlap: how long links are interrupted and overlap, and how much of the cost between
    submitting at the end and the oracle is saved. Planners that learn do so from the first 55% of the time. Simulating
    takes minutes a cell; what was simulated is kept in the user's cache. What --save writes is taken by --trained.

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.study_successors import run_study, study_call

    call = study_call(trace, gpus, link_gpus, planners, models, days, limit, every, seed, partition, save)
    return run_study(call, as_json, wide=wide)
