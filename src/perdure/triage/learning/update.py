"""Teaching: a model is updated with a site's lessons, and the update is adopted only if it is not worse.

The pupil is always the model that came with Perdure, so that a lesson withdrawn is a lesson unlearnt. An update is
examined on a fixed set that it was never taught, and on lessons of the site that were held back; it is adopted only
where it is worse on neither. What the model knew before is replayed with the new examples, so that it is not forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perdure.triage.classifiers.protocol import Example, Model
from perdure.triage.learning.examples import ExampleCaps, LabelSource, TrainingExample, taught

HELD_BACK = 5
"""One group in so many (a fingerprint of lessons, a family of known failures) is never taught, and examines."""
ALLOWED_FALL = 0.01
"""Of the balanced accuracy, and..."""
ALLOWED_RISE = 0.02
"""...of the log-loss: one example that sits on the fence moves both, and shows nothing."""


@dataclass(frozen=True, slots=True)
class EvaluationMetrics:
    """How a model did in an examination. Both kinds of failure weigh the same."""

    examples: int
    balanced_accuracy: float
    log_loss: float


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One round of teaching: what was taught, the marks before and after, and what happened to the update."""

    offered: int  # lessons that there were
    lessons: int  # of them taught
    persons: int  # of those offered, that are a person's word
    fixed_before: EvaluationMetrics
    fixed_after: EvaluationMetrics
    site_before: EvaluationMetrics
    site_after: EvaluationMetrics
    adopted: bool
    reason: str


def update_model(
    base: Model,
    current: Model,
    lessons: Sequence[TrainingExample],
    known: Sequence[Example],
    caps: ExampleCaps | None = None,
) -> tuple[Model, RoundResult]:
    """The model to use from now on, and how it came to that.

    `base` is the model that came with Perdure, `current` the one in use, `known` what was true before any lesson: most
    groups of it are rehearsed, one in `HELD_BACK` is the fixed set. Where the update is worse than `current`, `current`
    is used on.
    """
    rehearsal, fixed = ([e for e in known if _is_held_back(e.group) is examined] for examined in (False, True))
    chosen = taught(lessons, caps)
    learnt = [
        lesson.example
        for lesson in chosen
        if lesson.source is LabelSource.PERSON or not _is_held_back(lesson.fingerprint)
    ]
    site = [
        lesson.example
        for lesson in chosen
        if lesson.source is not LabelSource.PERSON and _is_held_back(lesson.fingerprint)
    ]
    update = base.update([*learnt, *rehearsal]) if learnt else base
    before, after = (marks(model, fixed) for model in (current, update))
    site_before, site_after = (marks(model, site) for model in (current, update))
    reason = worse("the fixed set", before, after) or worse("the site's own lessons", site_before, site_after)
    persons = sum(lesson.source is LabelSource.PERSON for lesson in lessons)
    term = RoundResult(
        len(lessons),
        len(learnt),
        persons,
        before,
        after,
        site_before,
        site_after,
        not reason,
        reason or "not worse anywhere",
    )
    return (current if reason else update), term


def marks(model: Model, examples: Sequence[Example]) -> EvaluationMetrics:
    """Examine a model. Without examples of a kind, that kind counts as told rightly."""
    if not examples:
        return EvaluationMetrics(0, 1.0, 0.0)
    z = np.array([model.log_odds(example.reading) for example in examples])
    truth = np.array([example.transient for example in examples], dtype=bool)
    loss = np.logaddexp(0.0, np.where(truth, -z, z))
    kinds = [part for part in (truth, ~truth) if part.any()]
    right = (z > 0) == truth
    return EvaluationMetrics(
        len(examples),
        round(float(np.mean([right[part].mean() for part in kinds])), 4),
        round(float(np.mean([loss[part].mean() for part in kinds])), 4),
    )


def worse(where: str, before: EvaluationMetrics, after: EvaluationMetrics) -> str:
    """Why an update is worse there; "" where it is not."""
    if after.balanced_accuracy < before.balanced_accuracy - ALLOWED_FALL:
        return f"on {where} its accuracy fell from {before.balanced_accuracy:.3f} to {after.balanced_accuracy:.3f}"
    if after.log_loss > before.log_loss + ALLOWED_RISE:
        return f"on {where} its log-loss rose from {before.log_loss:.3f} to {after.log_loss:.3f}"
    return ""


def _is_held_back(group: str) -> bool:
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % HELD_BACK == 0
