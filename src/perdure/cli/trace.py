"""``perdure trace ...``: draw a trace of any size, or turn one into another form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.output import print_line
from perdure.cli.progress import progress

app = typer.Typer()
CLUSTER_HELP = (
    "Nodes x GPUs: 32x8, 321x2+231x8, 32x8/4 (racks of 4), 32x8:cpu=96:mem=1T; or a list of machines, CSV or TOML."
)
ClusterSpec = Annotated[str, typer.Option(metavar="SPEC|FILE", help=CLUSTER_HELP)]
TraceFormat = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Form of the trace; recognised by its content if not given."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out and count them, instead of stopping.")]


@app.callback()
def trace() -> None:
    """Generate a trace of any size, or convert one to another form.

    Exit codes: 0 written, 2 usage or bad input.
    """


@app.command("generate")
def generate(
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=100_000_000, help="How many.")],
    cluster: ClusterSpec,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Ends in .csv, .csv.gz or .parquet.")],
    load: Annotated[float, typer.Option(metavar="X", help="GPU time asked for over the GPU time there is.")] = 0.8,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed draws the same trace.")] = 0,
    no_failures: Annotated[bool, typer.Option("--no-failures", help="Every job passes at its first attempt.")] = False,
    arrivals: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="Jobs come as in this trace: days, weeks, bursts, sweeps of a user."),
    ] = None,
) -> int:
    """Generate jobs like those of a published trace.

    That trace is Philly's: sizes, durations, bursts, failed attempts. Arrivals can be fitted to another one.

    Exit codes: 0 written, 2 usage or bad input.
    """
    from numpy.random import default_rng

    from perdure.cli.simulated import cluster_named
    from perdure.traces.arrivals import PHILLY, fit
    from perdure.traces.generate import generate as draw
    from perdure.traces.own import check_path, write
    from perdure.traces.read import read

    check_path(out)
    with progress(what="drawing jobs"):
        rhythm = PHILLY if arrivals is None else fit(read(arrivals).table)
        table = draw(jobs, cluster_named(cluster), load, default_rng(seed), not no_failures, rhythm)
        write(table, out)
    if arrivals is not None:
        print_line(f"{arrivals}: {rhythm}")
    print_line(f"{out}: {len(table)} jobs")
    return 0


@app.command("apps")
def apps(
    count: Annotated[int, typer.Option("--apps", metavar="N", min=1, max=100_000, help="How many.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A CSV file.")],
    every: Annotated[float, typer.Option(metavar="SECONDS", min=1.0, help="Mean time between two apps.")] = 1200.0,
    search: Annotated[str, typer.Option(metavar="SEARCH", help="halving, halving-81, first, or all.")] = "halving",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed draws the same trace.")] = 0,
) -> int:
    """Generate apps of many jobs that search hyper-parameters.

    They are like those that Themis' paper describes, for `perdure whatif elastic` with the profiles of Pollux. With
    halving the best third goes on after 1/9 and 1/3 of its work (halving-81: from 1/81 on); with first all stop when
    one is done.

    Exit codes: 0 written, 2 usage or bad input.
    """
    from numpy.random import default_rng

    from perdure.errors import ConfigError
    from perdure.model.profiles import SEARCHES
    from perdure.traces.apps import draw_apps, write_apps

    if search not in SEARCHES:
        raise ConfigError(f"--search {search}", "no search has that name", f"Use one of: {', '.join(SEARCHES)}")
    jobs = draw_apps(count, every, search, default_rng(seed))
    write_apps(jobs, out)
    print_line(f"{out}: {count} apps, {len(jobs)} jobs")
    return 0


@app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A trace of any known form.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Ends in .csv, .csv.gz or .parquet.")],
    format: TraceFormat = None,
    skip_bad: SkipBad = False,
) -> int:
    """Write a trace in Perdure's own form.

    It holds all that a simulation uses, and names what was left out.

    Exit codes: 0 written, 2 usage or bad input.
    """
    from perdure.cli.simulated import tell_of
    from perdure.traces.own import check_path, write
    from perdure.traces.read import read

    check_path(out)
    with progress(what="reading and writing"):
        found = read(source, format, skip_bad=skip_bad)
        write(found.table, out)
    tell_of(found, source)
    print_line(f"{out}: {len(found.table)} jobs, read as {found.format}")
    return 0
