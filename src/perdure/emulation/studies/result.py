"""What a study found: a table of short texts and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.emulation.known_profiles import profile_of
from perdure.emulation.profiles import GpuStep, ProfileTable
from perdure.errors import InputError


@dataclass(frozen=True, slots=True)
class StudyTable:
    """Rows of one length as `columns`, and what was assumed, in sentences."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    assumed: str


def steps_of(gpu: str, models: tuple[str, ...], batch: int, table: ProfileTable | None) -> dict[str, GpuStep]:
    """The profiles of those of the models of which one is known. Raises `InputError` where none is."""
    found = {}
    for model in models:
        try:
            found[model] = profile_of(gpu, model, batch, table)
        except InputError:
            continue
    if not found:
        what = f"it has no profile of {', '.join(models)} on {gpu}"
        raise InputError("--profiles", what, "Leave it away, or give a table that has one of them")
    return found
