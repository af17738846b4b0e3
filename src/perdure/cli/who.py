"""``perdure who``: which components are to blame for the failures of a window of observations."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from perdure.cli.default_command import DefaultCommand, OldValue
from perdure.cli.options import AsJson, StateDir, Wide, service
from perdure.cli.output import print_json, print_line, print_table, since
from perdure.cli.picture_file import form_of, save
from perdure.cli.progress import progress
from perdure.cli.study import colocation, tor
from perdure.cli.table import names, word

if TYPE_CHECKING:
    from perdure.blame.charts import Format
    from perdure.blame.verdict import Suspect
    from perdure.blame.window import Window

NOBODY, FOUND = 0, 1
COLUMNS = (
    word("COMPONENT"), word("TIER"), word("KIND", leave=4), word("RATE"), word("95 % INTERVAL", leave=2),
    word("FAILED UNITS", leave=3), word("STRENGTH", leave=1), names("ALIKE", leave=5), names("FOR", leave=7),
    names("AGAINST", leave=6),
)  # fmt: skip
LIVE_COLUMNS = (
    word("SUSPECT"), word("TIER"), word("KIND", leave=5), word("RATE"), word("95 % INTERVAL", leave=4),
    word("FAILED", leave=1), word("PASSED", leave=2), word("USERS", leave=3), word("SINCE", leave=6),
    names("ALIKE", leave=7),
)  # fmt: skip
CASE_COLUMNS = (word("CASE"), word("SECONDS", leave=1), names("TO BLAME"))

SolverName = Annotated[
    str, typer.Option("--solver", metavar="NAME", help="greedy, deepview, netbouncer, flock, 007 or score.")
]


class WhoCommands(DefaultCommand):
    """Where no command is named, `paths` is meant with a file, and `suspects` without."""

    default = "paths"
    older: ClassVar[Mapping[str, tuple[str, OldValue]]] = {
        "--batch": ("batch", OldValue.FIRST),
        "--study": ("", OldValue.NAMES),
    }

    def default_of(self, args: Sequence[str]) -> str:
        given = [word for before, word in pairwise(["", *args]) if not word.startswith("-") and before != "--state"]
        return "paths" if given else "suspects"


app = typer.Typer(cls=WhoCommands)
app.command("tor", hidden=True)(tor)  # as they were spelt before `perdure study`
app.command("colocation", hidden=True)(colocation)


@app.callback()
def who() -> None:
    """Name the components to blame for failures.

    perdure who asks the running service, perdure who FILE solves a window of observations.

    Exit codes: 0 nobody is to blame, 1 there are suspects, 2 usage or bad input.
    """


@app.command("suspects")
def suspects(wide: Wide = False, as_json: AsJson = False, state: StateDir = None) -> int:
    """Ask the running service for its suspects.

    Exit codes: 0 nobody is to blame, 1 there are suspects, 2 usage, or no service.
    """
    return _ask(state, as_json, wide=wide)


@app.command("paths")
def paths(
    observed: Annotated[Path, typer.Argument(metavar="PATHS", help="Parquet: path, components, n, e.")],
    components: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Parquet: component, tier; all that there are.")
    ] = None,
    solver: SolverName = "greedy",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw failure rates, suspects framed: .svg or .png.")
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="TIER", help="With --out: the tier of the rows.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="TIER", help="With --out: the tier of the columns.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Name the components to blame, from how many units failed on which path.

    Exit codes: 0 nobody is to blame, 1 there are suspects, 2 usage or bad input.
    """
    return _solve(observed, components, solver, as_json, out, form_of(out), (rows, columns), wide=wide)


@app.command("batch")
def batch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Every cases/*.paths.parquet in it.")],
    solver: SolverName = "greedy",
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Solve every window of a folder.

    Exit codes: 0 all are solved, 2 usage or bad input.
    """
    _solve_folder(folder, solver, as_json, wide=wide)
    return 0


def _ask(state: Path | None, as_json: bool, *, wide: bool) -> int:
    """The suspects of the running service."""
    found = service(state).get("/suspects")
    if as_json:
        print_json("who", 1, **found)
    elif not found["suspects"]:
        print_line("Nobody is to blame: the failures look like chance, or like the jobs' own faults.")
    else:
        print_table(LIVE_COLUMNS, map(_live_row, found["suspects"]), wide=wide)
    return FOUND if found["suspects"] else NOBODY


def _live_row(one: dict[str, Any]) -> tuple[object, ...]:
    alike = ", ".join(f"{other['tier']} {other['name']}" for other in one["equivalent"])
    return (
        one["component"], one["tier"], one["kind"], f"{one['rate']:.0%}", f"{one['rate_low']:.0%} to "
        f"{one['rate_high']:.0%}", str(one["units"]), str(one["passed"]), str(one["users"]), since(one["since_s"]),
        alike or "-",
    )  # fmt: skip


def _solve(
    paths: Path,
    components: Path | None,
    solver: str,
    as_json: bool,
    out: Path | None,
    form: Format,
    tiers: tuple[str | None, str | None],
    *,
    wide: bool,
) -> int:
    from perdure.blame.read import read_window

    with progress(what="solving"):
        window = read_window(paths, components)
        suspects, seconds = _timed(window, solver)
    if out is not None:
        _draw(window, suspects, out, form, tiers)
    if as_json:
        print_json("who", 1, suspects=[asdict(suspect) for suspect in suspects], seconds=seconds)
    else:
        _print(suspects, wide=wide)
    return FOUND if suspects else NOBODY


def _draw(
    window: Window, suspects: Sequence[Suspect], out: Path, form: Format, tiers: tuple[str | None, str | None]
) -> None:
    from perdure.blame.charts import draw_grid, picture
    from perdure.blame.grid import grid

    column = {int(component): place for place, component in enumerate(window.component_ids)}
    culprits = {column[suspect.component] for suspect in suspects}
    shown = grid(window, culprits, *tiers)
    names = [f"{tier} {component}" for tier, component in zip(window.tiers, window.component_ids, strict=True)]
    height = min(14.0, 3.0 + 0.1 * len(shown.rows))
    save(out, picture(draw_grid(shown, names, culprits), form, (8.5, height)))


def _timed(window: Window, solver: str) -> tuple[tuple[Suspect, ...], float]:
    """The suspects, and the seconds that finding them took."""
    from perdure.blame.registry import localise

    window.by_component  # noqa: B018  (reading, not solving)
    begun = perf_counter()
    suspects = localise(window, solver)
    return suspects, round(perf_counter() - begun, 6)


def _solve_folder(folder: Path, solver: str, as_json: bool, *, wide: bool) -> None:
    from perdure.blame.read import cases, read_window

    answer: dict[str, list[int] | float] = {}
    rows = []
    found = list(cases(folder))
    with progress(len(found), "solving") as tell:
        for done, case in enumerate(found, 1):
            suspects, seconds = _timed(read_window(case.paths, case.components), solver)
            answer[case.name] = [suspect.component for suspect in suspects]
            answer[f"{case.name}:s"] = seconds
            named = ", ".join(f"{suspect.tier} {suspect.component}" for suspect in suspects)
            rows.append((case.name, f"{seconds:.3f}", named or "nobody"))
            tell(done)
    if as_json:
        sys.stdout.write(json.dumps(answer) + "\n")  # as it is scored: nothing but cases in it
    else:
        print_table(CASE_COLUMNS, rows, wide=wide)


def _print(suspects: Sequence[Suspect], *, wide: bool) -> None:
    if not suspects:
        print_line("Nobody is to blame: the failures look like chance.")
        return
    print_table(COLUMNS, map(_row, suspects), wide=wide)


def _row(suspect: Suspect) -> tuple[str, ...]:
    def ids(values: Sequence[int]) -> str:
        return " ".join(map(str, values)) or "-"

    return (
        str(suspect.component), suspect.tier, suspect.kind, f"{suspect.rate:.2%}",
        f"{suspect.rate_low:.2%} to {suspect.rate_high:.2%}", str(suspect.units), f"{suspect.strength:.1f}",
        ids(suspect.equivalent), ids(suspect.paths_for), ids(suspect.paths_against),
    )  # fmt: skip
