"""``perdure when ...``: when waiting jobs will start. ``bench`` measures how well that is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.options import AsJson

app = typer.Typer()


@app.callback()
def when() -> None:
    """Measure how well the waits of a queue can be predicted.

    Exit codes: 0 answered, 2 usage or bad input.
    """


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
    refit_days: Annotated[int, typer.Option(metavar="N", min=1, help="Learn anew every N days.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same answers.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Predict the waits of DATA from a day on, and hold the answers against what came.

    Each day is predicted from what was known at its first look: starts that came later are not used. Waits count from
    the look to the start.

    Exit codes: 0 measured, 2 usage or bad input.
    """
    from perdure.cli.when_bench import Asked, bench_predictor

    return bench_predictor(Asked(data, form, cut, predictor, refit_days, seed), predictions_out, as_json=as_json)
