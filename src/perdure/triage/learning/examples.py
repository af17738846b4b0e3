"""Lessons: failures whose truth a site has learnt, and which of them a model may be taught."""

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
    def example(self) -> Example:
        """The lesson as an example; failures that look alike are one group."""
        return Example(str(self.attempt), f"site/{self.fingerprint}", self.transient, self.reading)


@dataclass(frozen=True, slots=True)
class ExampleCaps:
    """Limits on training data by source, so that no user can bias the model."""

    per_fingerprint: int = 5
    per_user: int = 50
    share_of_one_user: float = 0.2
    """At most this share of all that is taught comes from one user (but `floor_per_user` may always)."""
    floor_per_user: int = 5
    most: int = 5000


def taught(lessons: Iterable[TrainingExample], caps: ExampleCaps | None = None) -> list[TrainingExample]:
    """The lessons that a model is taught, newest first.

    Of an attempt a person's word counts, else the newest. A fingerprint of which outcomes say both teaches nothing,
    until a person speaks. What persons say is not capped.
    """
    caps = caps or ExampleCaps()
    ordered = sorted(
        lessons, key=lambda lesson: (lesson.source is not LabelSource.PERSON, -lesson.time_s, lesson.attempt)
    )
    one_each: dict[AttemptId, TrainingExample] = {}
    for lesson in ordered:
        one_each.setdefault(lesson.attempt, lesson)
    told = {lesson.fingerprint: lesson.transient for lesson in reversed(ordered) if lesson.source is LabelSource.PERSON}
    both = _contradictory(one_each.values())
    clear = [
        lesson
        for lesson in one_each.values()
        if lesson.source is LabelSource.PERSON
        or (
            told[lesson.fingerprint] == lesson.transient
            if lesson.fingerprint in told
            else lesson.fingerprint not in both
        )
    ]
    return _capped(clear, caps)


def _contradictory(lessons: Iterable[TrainingExample]) -> set[str]:
    """Fingerprints of which outcomes say both kinds."""
    kinds: dict[str, set[bool]] = {}
    for lesson in lessons:
        if lesson.source is LabelSource.OUTCOME:
            kinds.setdefault(lesson.fingerprint, set()).add(lesson.transient)
    return {fingerprint for fingerprint, said in kinds.items() if len(said) > 1}


def _capped(lessons: list[TrainingExample], caps: ExampleCaps) -> list[TrainingExample]:
    of_user_most = max(caps.floor_per_user, min(caps.per_user, int(caps.share_of_one_user * len(lessons))))
    of_fingerprint: Counter[str] = Counter()
    of_user: Counter[str] = Counter()
    kept = []
    for lesson in lessons:
        by_person = lesson.source is LabelSource.PERSON
        if not by_person and (
            of_fingerprint[lesson.fingerprint] >= caps.per_fingerprint or of_user[lesson.user] >= of_user_most
        ):
            continue
        of_fingerprint[lesson.fingerprint] += 1
        of_user[lesson.user] += 1
        kept.append(lesson)
        if len(kept) == caps.most:
            break
    return kept
