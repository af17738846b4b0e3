"""What a classifier must beat: one answer for all, and the rules without a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from perdure.triage.classifiers.model_file import pack, unpack
from perdure.triage.classifiers.protocol import Example, Reading

SURE = math.log(99.0)  # log-odds that stand for "always"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Constant:
    """Says the same of every failure."""

    name: str
    answer: float

    def log_odds(self, reading: Reading) -> float:  # noqa: ARG002
        return self.answer

    def update(self, examples: Sequence[Example]) -> Constant:  # noqa: ARG002
        return self

    def save(self) -> bytes:
        return pack(self.name, FORMAT, {})


@dataclass(frozen=True, slots=True)
class Priors:
    """Believes the prior of the cause that the rules rank first; leans nowhere where none matched."""

    name: ClassVar[str] = "rules"

    def log_odds(self, reading: Reading) -> float:
        cause = min(reading.causes, key=attrgetter("rank"), default=None)
        return 0.0 if cause is None else math.log(cause.p_transient / (1.0 - cause.p_transient))

    def update(self, examples: Sequence[Example]) -> Priors:  # noqa: ARG002
        return self

    def save(self) -> bytes:
        return pack(self.name, FORMAT, {})


@dataclass(frozen=True, slots=True)
class Unlearned:
    """A classifier that has nothing to learn: it always makes the same model."""

    name: str
    model: Constant | Priors

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Constant | Priors:  # noqa: ARG002
        return self.model

    def load(self, data: bytes, source: str) -> Constant | Priors:
        unpack(data, source, self.name, FORMAT, ())
        return self.model


ALWAYS = Unlearned("always", Constant("always", SURE))
"""Always retries."""
NEVER = Unlearned("never", Constant("never", -SURE))
"""Never retries."""
RULES = Unlearned("rules", Priors())
