"""``perdure keep ...``: work that goes on past its walltime, as a chain of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.options import AsJson, Wide

app = typer.Typer()


@app.callback()
def keep() -> None:
    """Keep a job running past its walltime, as a chain of jobs.

    Exit codes: 0 ok, 2 usage or bad input.
    """


@app.command("study")
def study(
    trace: Annotated[
        Path, typer.Option(metavar="FILE", help="A trace of 30 days or more: SWF, CSV, Parquet or sacct's.")
    ],
    gpus: Annotated[str, typer.Option(metavar="N,...", help="GPUs, or processors, of the cluster: a cell each.")],
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
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Measure when planners submit the successor of a link, on a trace that goes through a simulated Slurm.

    For each planner and price of overlap: how long links are interrupted and overlap, and how much of the cost between
    submitting at the end and the oracle is saved. Planners that learn do so from the first 55% of the time. Simulating
    takes minutes a cell; what was simulated is kept in the user's cache.

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.keep_study import run_study, study_call

    return run_study(study_call(trace, gpus, link_gpus, planners, models, days, limit, every, seed), as_json, wide=wide)
