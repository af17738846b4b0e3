"""Training: a model is updated with a site's examples, and the update is adopted only if it is not worse.

Training always starts from the model that came with Perdure, so that an example withdrawn is forgotten. An update is
evaluated on a fixed test set, and on examples of the site that were held out; it is adopted only
where it is worse on neither. What the model knew before is replayed with the new examples, so that it is not forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perdure.triage.classifiers.protocol import Example, Model
from perdure.triage.learning.examples import ExampleCaps, LabelSource, TrainingExample, select_examples

HELD_BACK = 5
"""One group in this many (a fingerprint of examples, a family of known failures) is held out for evaluation."""
LEFT_OUT = 2
"""Users without whom a round that failed is tried again, where twice as many have examples."""
ALLOWED_FALL = 0.01
"""Of the balanced accuracy, and..."""
ALLOWED_RISE = 0.02
"""...of the log-loss: one example near the decision threshold moves both, and shows nothing."""


@dataclass(frozen=True, slots=True)
class EvaluationMetrics:
    """The metrics of a model on a test set. Both labels weigh the same."""

    examples: int
    balanced_accuracy: float
    log_loss: float


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One training round: the examples, the metrics before and after, and whether the update was adopted."""

    offered: int  # examples that there were
    lessons: int  # of them trained on
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
    examples: Sequence[TrainingExample],
    known: Sequence[Example],
    caps: ExampleCaps | None = None,
    turn: int = 0,
) -> tuple[Model, RoundResult]:
    """The model to use from now on, and how it came to that.

    `base` is the model that came with Perdure, `current` the one in use, `known` the labelled failures that ship with
    it: most groups of it are replayed, one in `HELD_BACK` is the fixed test set. Where the update is worse than
    `current`, `current` is used on. Of the site's examples another part is held out each `turn`, so that nobody can
    learn which are never examined. What is in use may have been trained on that part, so there the update is held
    against `base`, which knew none; and it is worse only where it is so for half of the users whose examples they are.

    An update that is worse is tried once more without the examples of the `LEFT_OUT` users which surprise `base` most:
    a few voices block no round.
    """
    model, result = _round(base, current, examples, known, caps, turn)
    if result.adopted or not (left := _most_surprising(base, select_examples(examples, caps))):
        return model, result
    others = [each for each in examples if each.source is LabelSource.PERSON or each.user not in left]
    second, found = _round(base, current, others, known, caps, turn)
    if not found.adopted:
        return model, result
    reason = f"{found.reason}, without the examples of {' and '.join(sorted(left))}"
    return second, replace(found, offered=result.offered, persons=result.persons, reason=reason)


def _most_surprising(base: Model, examples: Sequence[TrainingExample]) -> set[str]:
    """The users whose outcomes are least likely by what came with Perdure; nobody where hardly any others are left."""
    losses: dict[str, float] = {}
    for each in examples:
        if each.source is not LabelSource.PERSON:
            z = base.log_odds(each.reading)
            loss = float(np.logaddexp(0.0, -z if each.transient else z))
            losses[each.user] = losses.get(each.user, 0.0) + loss
    if len(losses) < 2 * LEFT_OUT:
        return set()
    return set(sorted(losses, key=lambda user: -losses[user])[:LEFT_OUT])


def _round(
    base: Model,
    current: Model,
    examples: Sequence[TrainingExample],
    known: Sequence[Example],
    caps: ExampleCaps | None,
    turn: int,
) -> tuple[Model, RoundResult]:
    """One update and its evaluation."""
    replayed, fixed = ([e for e in known if _is_held_back(e.group) is held_out] for held_out in (False, True))
    chosen = select_examples(examples, caps)
    training = [
        each.for_model
        for each in chosen
        if each.source is LabelSource.PERSON or not _is_held_back(each.fingerprint, turn)
    ]
    held = [each for each in chosen if each.source is not LabelSource.PERSON and _is_held_back(each.fingerprint, turn)]
    site = [each.for_model for each in held]
    update = base.update([*training, *replayed]) if training else base
    before, after = (evaluate(model, fixed) for model in (current, update))
    site_before, site_after = (evaluate(model, site) for model in (base, update))
    reason = worse("the fixed set", before, after) or worse("the site's own examples", site_before, site_after)
    if reason and not worse("the fixed set", before, after) and not _is_worse_for_half(held, base, update):
        reason = ""
    persons = sum(each.source is LabelSource.PERSON for each in examples)
    result = RoundResult(
        len(examples),
        len(training),
        persons,
        before,
        after,
        site_before,
        site_after,
        not reason,
        reason or "not worse anywhere",
    )
    return (current if reason else update), result


def evaluate(model: Model, examples: Sequence[Example]) -> EvaluationMetrics:
    """Evaluate a model. A label without examples counts as predicted rightly."""
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


def _is_worse_for_half(held: Sequence[TrainingExample], before: Model, after: Model) -> bool:
    """Whether it is worse for half of the users: so one voice, or two, block no round."""
    of_user: dict[str, list[Example]] = {}
    for each in held:
        of_user.setdefault(each.user, []).append(each.for_model)
    rises = [evaluate(after, own).log_loss > evaluate(before, own).log_loss for own in of_user.values()]
    return 2 * sum(rises) >= len(rises)


def _is_held_back(group: str, turn: int = 0) -> bool:
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % HELD_BACK == turn % HELD_BACK
