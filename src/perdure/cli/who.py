"""``perdure who``: which components are to blame for the failures of a window of observations."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson
from perdure.cli.output import print_json, print_line, print_table
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.blame.verdict import Suspect
    from perdure.blame.window import Window

NOBODY, FOUND = 0, 1
COLUMNS = (
    "component", "tier", "kind", "rate", "95 % interval", "failed units", "strength", "alike", "for", "against",
)  # fmt: skip

Paths = Annotated[
    Path | None, typer.Argument(metavar="PATHS", help="Parquet: path, components, n, e.", show_default=False)
]
Components = Annotated[
    Path | None, typer.Option("--components", metavar="FILE", help="Parquet: component, tier; all that there are.")
]
Batch = Annotated[
    Path | None, typer.Option("--batch", metavar="FOLDER", help="Instead: every cases/*.paths.parquet of a folder.")
]
SolverName = Annotated[
    str, typer.Option("--solver", metavar="NAME", help="greedy, deepview, netbouncer, flock, 007 or score.")
]


def who(
    paths: Paths = None,
    components: Components = None,
    batch: Batch = None,
    solver: SolverName = "greedy",
    as_json: AsJson = False,
) -> int:
    """Name the components to blame for failures, from how many units failed on which path.

    \b
    Exit codes:
      0  nobody is to blame, or a folder is done
      1  there are suspects
      2  usage or bad input
    """
    if batch is not None:
        if paths is not None or components is not None:
            raise InputError("who", "--batch takes no other file", "Give either a file or --batch FOLDER")
        _solve_folder(batch, solver, as_json)
        return NOBODY
    if paths is None:
        what = "the live service does not name suspects yet"
        raise InputError("who", what, "Give a file of paths, or --batch FOLDER")
    from perdure.blame.read import read_window

    suspects, seconds = _timed(read_window(paths, components), solver)
    if as_json:
        print_json("who", 1, suspects=[asdict(suspect) for suspect in suspects], seconds=seconds)
    else:
        _print(suspects)
    return FOUND if suspects else NOBODY


def _timed(window: Window, solver: str) -> tuple[tuple[Suspect, ...], float]:
    """The suspects, and the seconds that finding them took."""
    from perdure.blame.registry import localise

    window.by_component  # noqa: B018  (reading, not solving)
    begun = perf_counter()
    suspects = localise(window, solver)
    return suspects, round(perf_counter() - begun, 6)


def _solve_folder(folder: Path, solver: str, as_json: bool) -> None:
    from perdure.blame.read import cases, read_window

    answer: dict[str, list[int] | float] = {}
    rows = []
    for case in cases(folder):
        suspects, seconds = _timed(read_window(case.paths, case.components), solver)
        answer[case.name] = [suspect.component for suspect in suspects]
        answer[f"{case.name}:s"] = seconds
        named = ", ".join(f"{suspect.tier} {suspect.component}" for suspect in suspects)
        rows.append((case.name, f"{seconds:.3f}", named or "nobody"))
    if as_json:
        sys.stdout.write(json.dumps(answer) + "\n")  # as it is scored: nothing but cases in it
    else:
        print_table(("case", "seconds", "to blame"), rows, whole=("case",))


def _print(suspects: Sequence[Suspect]) -> None:
    if not suspects:
        print_line("Nobody is to blame: the failures look like chance.")
        return
    print_table(COLUMNS, (_row(suspect) for suspect in suspects), whole=COLUMNS[:6])


def _row(suspect: Suspect) -> tuple[str, ...]:
    def ids(values: Sequence[int]) -> str:
        return " ".join(map(str, values)) or "-"

    return (
        str(suspect.component), suspect.tier, suspect.kind, f"{suspect.rate:.2%}",
        f"{suspect.rate_low:.2%} to {suspect.rate_high:.2%}", str(suspect.units), f"{suspect.strength:.1f}",
        ids(suspect.equivalent), ids(suspect.paths_for), ids(suspect.paths_against),
    )  # fmt: skip
