"""What every classifier of failures offers: ``fit``, ``update``, ``log_odds``, and models saved as data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from perdure.triage.evidence.rule import Cause


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model is given of one failure."""

    excerpt: str  # the part of the log that shows how it ended, cleaned
    causes: tuple[Cause, ...] = ()  # of the rules that matched there, in the log's order


@dataclass(frozen=True, slots=True)
class Example:
    """A failure whose truth is known; examples of one `group` are never split between training and test."""

    id: str
    group: str
    transient: bool
    reading: Reading


class Model(Protocol):
    """Something that has learnt. Models are values: nothing changes one."""

    def log_odds(self, reading: Reading) -> float:
        """Calibrated natural log-odds that the failure is transient, both kinds being equally frequent."""
        ...

    def update(self, examples: Sequence[Example]) -> Self:
        """A model that has learnt these too, without the examples that this one was made from."""
        ...

    def save(self) -> bytes:
        """The bytes of the model's file; equal models give equal bytes."""
        ...


class Classifier(Protocol):
    """A way to make models."""

    name: str

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Model:
        """Learn from examples of both kinds; the same for the same examples and seed. Raises `InputError`."""
        ...

    def load(self, data: bytes, source: str) -> Model:
        """Read what `Model.save` wrote. Raises `InputError`, naming `source`, for anything else."""
        ...
