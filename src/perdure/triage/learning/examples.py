"""Training examples: failures whose label a site knows, and which of them a model may be trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from perdure.model.identity import AttemptId
from perdure.triage.classifiers.protocol import Example, Reading


class LabelSource(StrEnum):
    """Whose word a label is."""

    OUTCOME = "outcome"
    PERSON = "person"  # outranks all


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A failure, what was read of it, and its truth."""

    attempt: AttemptId
    time_s: float
    user: str
    fingerprint: str
    reading: Reading
    transient: bool
    source: LabelSource

    @property
    def for_model(self) -> Example:
        """The example as a classifier takes it; failures that look alike are one group."""
        return Example(str(self.attempt), f"site/{self.fingerprint}", self.transient, self.reading)


@dataclass(frozen=True, slots=True)
class ExampleCaps:
    """Limits on training data by source, so that no user can bias the model."""

    per_fingerprint: int = 5
    per_user: int = 50
    share_of_one_user: float = 0.2
    """At most this share of the others' training data comes from one user (but `floor_per_user` may always)."""
    floor_per_user: int = 5
    most: int = 5000


def select_examples(examples: Iterable[TrainingExample], caps: ExampleCaps | None = None) -> list[TrainingExample]:
    """The examples that a model is trained on, newest first.

    Of an attempt a person's word counts, else the newest. A fingerprint with contradictory outcomes is left out,
    until a person speaks. What persons say is not capped.
    """
    caps = caps or ExampleCaps()
    ordered = sorted(
        examples, key=lambda example: (example.source is not LabelSource.PERSON, -example.time_s, example.attempt)
    )
    one_each: dict[AttemptId, TrainingExample] = {}
    for example in ordered:
        one_each.setdefault(example.attempt, example)
    persons = [example for example in reversed(ordered) if example.source is LabelSource.PERSON]
    told = {example.fingerprint: example.transient for example in persons}
    both = _contradictory(one_each.values())
    clear = [
        example
        for example in one_each.values()
        if example.source is LabelSource.PERSON
        or (
            told[example.fingerprint] == example.transient
            if example.fingerprint in told
            else example.fingerprint not in both
        )
    ]
    return _capped(clear, caps)


def _contradictory(examples: Iterable[TrainingExample]) -> set[str]:
    """Fingerprints of which outcomes say both kinds."""
    kinds: dict[str, set[bool]] = {}
    for example in examples:
        if example.source is LabelSource.OUTCOME:
            kinds.setdefault(example.fingerprint, set()).add(example.transient)
    return {fingerprint for fingerprint, said in kinds.items() if len(said) > 1}


def _capped(examples: list[TrainingExample], caps: ExampleCaps) -> list[TrainingExample]:
    offered = Counter(example.user for example in examples)
    few = {user: min(own, caps.floor_per_user) for user, own in offered.items()}  # nobody's flood lifts another's cap
    of_others = {user: sum(few.values()) - own for user, own in few.items()}
    of_user_most = {
        user: max(caps.floor_per_user, min(caps.per_user, int(caps.share_of_one_user * others)))
        for user, others in of_others.items()
    }
    of_fingerprint: Counter[str] = Counter()
    of_user: Counter[str] = Counter()
    kept = []
    for example in examples:
        by_person = example.source is LabelSource.PERSON
        is_full = of_user[example.user] >= of_user_most[example.user]
        if not by_person and (of_fingerprint[example.fingerprint] >= caps.per_fingerprint or is_full):
            continue
        of_fingerprint[example.fingerprint] += 1
        of_user[example.user] += 1
        kept.append(example)
        if len(kept) == caps.most:
            break
    return kept
