"""Sibylla's protocol: learn from a first part of a stream of failures, label the rest without people, and see.

Zhang et al., "Sibylla: To Retry or Not To Retry on Deep Learning Job Failure", USENIX ATC 2022: 20 % of the logs are
labelled by hand and train an ensemble; each next 10 % are labelled by the ensemble itself, which is updated with
them. How its votes are counted is not published: `majority` and `unanimous` are two readings of it. `outcome` labels
only what a retry proved, and like `teach` never builds on its own last model: each round learns anew, from the first
part and all that was proved since. `truth` has labels without fault.

Why not updates, in `outcome`: the first part of a stream shows one or two transient failures, and steps towards a
handful of new ones at a time forget them. Real logs lost balanced accuracy so, even with labels without fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.triage.classifiers.protocol import Classifier, Example, Model
from perdure.triage.learning.update import EvaluationMetrics, evaluate

Mode = Literal["majority", "unanimous", "outcome", "truth"]
MODES: tuple[Mode, ...] = get_args(Mode)
FIRST, STEP = 0.2, 0.1  # shares of the stream
PROVED = 0.4
"""Share of failures of which a retry proves the kind, where a site retries what it is unsure of."""


@dataclass(frozen=True, slots=True)
class Round:
    """The ensemble after one round, number 0 being the first training."""

    number: int
    labelled: int  # of this round's logs
    wrong: int  # labels among them that are not the truth
    metrics: EvaluationMetrics  # of the first member, on the logs that were put aside
    members: tuple[Model, ...]


def rounds(
    stream: Sequence[Example],
    aside: Sequence[Example],
    classifiers: Sequence[Classifier],
    mode: Mode,
    rng: Generator,
    proved: float = PROVED,
) -> list[Round]:
    """Run the protocol over a stream, in its order, and examine after each round on logs that are never taught."""
    cuts = _cuts(len(stream))
    known = list(stream[: cuts[0]])  # to be true: the first part, and what retries proved
    members = tuple(classifier.fit(known) for classifier in classifiers)
    told = [Round(0, cuts[0], 0, evaluate(members[0], aside), members)]
    for number, (start, end) in enumerate(pairwise(cuts), 1):
        chunk = stream[start:end]
        labelled = _labelled(members, chunk, mode, rng, proved)
        truth = {example.id: example.transient for example in chunk}
        wrong = sum(example.transient != truth[example.id] for example in labelled)
        if mode == "outcome":
            known += labelled
            members = tuple(classifier.fit(known) for classifier in classifiers)
        else:
            members = tuple(model.update(labelled) for model in members)
        told.append(Round(number, len(labelled), wrong, evaluate(members[0], aside), members))
    return told


def _cuts(count: int) -> list[int]:
    steps = round((1 - FIRST) / STEP)
    return [round(count * (FIRST + STEP * step)) for step in range(steps + 1)]


def _labelled(
    members: Sequence[Model], chunk: Sequence[Example], mode: Mode, rng: Generator, proved: float
) -> list[Example]:
    """The examples of a chunk that get a label, with that label."""
    if mode == "truth":
        return list(chunk)
    if mode == "outcome":
        return [example for example, drawn in zip(chunk, rng.random(len(chunk)), strict=True) if drawn < proved]
    votes: NDArray[np.int64] = np.array([[model.log_odds(e.reading) > 0 for model in members] for e in chunk]).sum(
        axis=1
    )
    if mode == "unanimous":
        return [
            replace(example, transient=bool(vote))
            for example, vote in zip(chunk, votes, strict=True)
            if vote in (0, len(members))
        ]
    return [replace(e, transient=bool(2 * vote > len(members))) for e, vote in zip(chunk, votes, strict=True)]
