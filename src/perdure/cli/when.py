"""``perdure when ...``: when waiting jobs will start, and what holds them. ``bench`` measures how good the forecasts
are.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli.options import AsJson, Wide

_JOB = "job"


class JobsToo(TyperGroup):
    """A group in which `job` is meant where the first word names no command: a job, a script, or none for the board."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((word for word in args if not word.startswith("-")), None)
        if first not in self.commands and not {"-h", "--help"}.intersection(args[:1]):
            args = [_JOB, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=JobsToo)


@app.callback()
def when() -> None:
    """Say when jobs will start, what holds them, and what would start sooner.

    perdure when JOB or perdure when SCRIPT asks about one job, perdure when alone about each partition. It asks Slurm
    once a minute at most, and needs no service and no rights but those of squeue.

    Exit codes: 0 answered, 1 it never starts as it is, 2 usage or bad input.
    """


@app.command(_JOB)
def job(
    what: Annotated[
        str | None,
        typer.Argument(metavar="JOB|SCRIPT", help="A job's id, or a batch script that is not submitted yet."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Say the chance of a start by then: 18:00, 2026-12-01T08:00, +3h."),
    ] = None,
    gpus: Annotated[str | None, typer.Option(metavar="N", help="For a script: sbatch --gpus.")] = None,
    nodes: Annotated[str | None, typer.Option(metavar="N", help="For a script: sbatch --nodes.")] = None,
    time: Annotated[str | None, typer.Option(metavar="LIMIT", help="For a script: sbatch --time.")] = None,
    partition: Annotated[str | None, typer.Option(metavar="NAME", help="For a script: sbatch --partition.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Answer again each minute until it starts.")] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Say when one job will start, or how long jobs wait in each partition.

    The answer is a median, an interval that holds four starts of five, and what holds the job. It comes from what-if
    runs of the queue as it is, with running times and arrivals drawn from the last weeks.

    Exit codes: 0 answered, 1 it never starts as it is, 2 usage or bad input.
    """
    gc.disable()  # little of what one answer makes is garbage, and to look for it takes a twentieth of its time
    try:
        from perdure.cli.when_answer import WhenOptions, ask

        given = {"gpus": gpus, "nodes": nodes, "time": time, "partition": partition}
        question = WhenOptions(what, by, {name: text for name, text in given.items() if text}, watch)
        return ask(question, as_json, wide=wide)
    finally:
        gc.enable()


@app.command("fit")
def fit(
    instants: Annotated[int, typer.Option(metavar="N", min=4, max=1000, help="At how many past instants to ask.")] = 40,
    as_json: AsJson = False,
) -> int:
    """Hold answers about this site's last weeks against what came, and correct later answers by that.

    Asks accounting alone. Worth doing once a week, from cron or by hand: what was learnt is kept for two weeks.

    Exit codes: 0 corrected from now on, 1 too little history to learn from, 2 usage or bad input.
    """
    from perdure.cli.when_fit import fit_site

    return fit_site(instants, as_json)


@app.command("bench")
def bench(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Looks at waiting jobs: a CSV or Parquet file.")],
    cut: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="The first day that is predicted.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="Form of DATA: drac.")] = "drac",
    predictor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which predictor; the default one if not given.")
    ] = None,
    predictions_out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write id, p10, p50, p90, truth, in seconds.")
    ] = None,
    refit_days: Annotated[int, typer.Option(metavar="N", min=1, help="Learn again every N days.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same answers.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Predict the waits of DATA from a day on, and hold the answers against what came.

    Each day is predicted from what was known at its first look: starts that came later are not used. Waits count from
    the look to the start.

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.when_bench import BenchOptions, bench_predictor

    return bench_predictor(BenchOptions(data, form, cut, predictor, refit_days, seed), predictions_out, as_json=as_json)
