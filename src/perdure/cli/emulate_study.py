"""``perdure emulate study``: published results again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perdure.cli.emulate_values import known
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import Column, word
from perdure.emulation.known_profiles import read_profiles
from perdure.emulation.studies.registry import STUDIES


def show_study(name: str, profiles: Path | None, seed: int, as_json: bool, *, wide: bool) -> int:
    """Run one, and print its table. Raises `InputError` for one that is not known."""
    run = STUDIES[known("NAME", name, STUDIES)]
    found = run(read_profiles(profiles) if profiles else None, np.random.default_rng(seed))
    if as_json:
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        print_json("emulate.study", 1, study=name, rows=rows, assumed=found.assumed)
        return 0
    print_table(columns_of(found.columns), ([_cell(each) for each in row] for row in found.rows), wide=wide)
    print_line(f"Assumed: {found.assumed}.")
    return 0


def columns_of(names: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of a study's table."""
    return tuple(word(each.upper()) for each in names)


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
