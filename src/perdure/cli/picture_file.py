"""A picture that a command draws into a file: the option, what kind it is by its name, and how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from perdure.errors import InputError, StateError

if TYPE_CHECKING:
    from perdure.blame.charts import Format

PictureFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw it, too: .svg or .png.")]


def form_of(out: Path | None) -> Format:
    """What kind of picture is asked for by the end of a file's name. Raises `InputError`."""
    form = "svg" if out is None else out.suffix.removeprefix(".").lower()
    if form not in ("svg", "png"):
        raise InputError(str(out), f"{out.suffix if out else ''!r} is not a kind of picture", "Name it .svg or .png")
    return cast("Format", form)


def save(path: Path, data: bytes) -> None:
    """Write a picture. Raises `StateError`."""
    try:
        path.write_bytes(data)
    except OSError as err:
        raise StateError(str(path), f"cannot be written: {err.strerror}", "Name another with --out") from err
