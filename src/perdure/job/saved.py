"""When a job last published a checkpoint: a small file next to its claims, read by whoever might put the job back."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json

SCHEMA = "perdure.checkpoint/1"
FILE = "checkpoint.json"


def note_saved(fence: Path, now: float) -> None:
    """Write down that a checkpoint was published now. Never fails: the checkpoint is there all the same."""
    with suppress(OSError):
        write_json(fence / FILE, {"schema": SCHEMA, "time_s": now})


def saved_s(fence: Path, owners: Collection[int]) -> float | None:
    """The instant of the last one by its writer's clock; None where none is known, or another than `owners` wrote."""
    path = fence / FILE
    with suppress(OSError, InputError):
        return Fields(str(path), read_json(path, SCHEMA, owners)).number("time_s")
    return None
