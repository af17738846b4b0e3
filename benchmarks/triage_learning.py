"""Tables of how much triage learns from how little: few labels, unknown frameworks, labels without people."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.sibylla_rounds import MODES, Round, rounds
from foundry.train import Said
from perdure.triage.classifiers.linear import LINEAR
from perdure.triage.classifiers.protocol import Classifier, Example, Model
from perdure.triage.classifiers.registry import classifier_named
from perdure.triage.classifiers.regression import group_folds
from perdure.triage.judge import judge
from perdure.triage.labelled import LabelledLog

SHOTS = (20, 35, 87)
DRAWS = 8
ASIDE = 0.3  # share of the groups that examine and are never taught
SLOW, SLOW_ORDERS = {"gru", "lstm"}, 1
"""Networks go through so many orders at most, and not through `outcome`, which learns anew in each round."""
OURS = "linear beside the rules (ours)"
ENSEMBLES = {
    "Sibylla-style: gru, lstm, cluster": ("gru", "lstm", "cluster"),
    "linear, cluster, rules": ("linear", "cluster", "rules"),
    OURS: ("linear",),
    "linear": ("linear",),
    "cluster": ("cluster",),
    "gru": ("gru",),
    "lstm": ("lstm",),
}


def fold_masks(examples: Sequence[Example], count: int) -> list[NDArray[np.bool_]]:
    """The folds of `train.held_out`: whole groups."""
    return list(group_folds([example.group for example in examples], count))


def few_shots(title: str, logs: Sequence[LabelledLog], examples: Sequence[Example]) -> Iterator[str]:
    """Accuracy by the number of labels, drawn from one half of the groups and judged on the other."""
    truth = np.array([example.transient for example in examples])
    yield f"### {title}: few labels, accuracy / balanced accuracy, mean of {DRAWS} draws\n"
    yield "| labels | linear alone | cluster alone | rules and linear |\n|---|---|---|---|"
    for shots in (*SHOTS, None):
        found = defaultdict(list)
        for draw in range(DRAWS):
            taught, judged = _drawn(examples, shots, np.random.default_rng([7, draw]))
            lessons, right = [examples[i] for i in taught], truth[judged]
            for name in ("linear", "cluster"):
                z = _scores(classifier_named(name).fit(lessons), [examples[i] for i in judged])
                found[name].append(_accuracies(z > 0, right))
                if name == "linear":
                    p = [_p(logs[i], score) for i, score in zip(judged, z, strict=True)]
                    found["product"].append(_accuracies(np.array(p) > 0.5, right))
        cells = (np.mean(found[name], axis=0) for name in ("linear", "cluster", "product"))
        yield f"| {shots or 'all'} | " + " | ".join(f"{a:.3f} / {b:.3f}" for a, b in cells) + " |"
    yield ""


def _drawn(examples: Sequence[Example], shots: int | None, rng: Generator) -> tuple[list[int], list[int]]:
    """Rows to learn from, of both kinds, and rows to judge, of both kinds and of other groups."""
    truth = np.array([example.transient for example in examples])
    groups = sorted({example.group for example in examples})
    while True:
        half = set(rng.permutation(groups)[: len(groups) // 2].tolist())
        inside = np.array([example.group in half for example in examples])
        pool = rng.permutation(np.flatnonzero(inside))[:shots]
        judged = np.flatnonzero(~inside)
        if len(set(truth[pool])) == len(set(truth[judged])) == 2:
            return pool.tolist(), judged.tolist()


def _scores(model: Model, examples: Sequence[Example]) -> NDArray[np.float64]:
    return np.array([model.log_odds(example.reading) for example in examples])


def _p(log: LabelledLog, z: float) -> float:
    return judge(log.text.encode("utf-8", "replace"), model=Said(z)).p_transient


def _accuracies(said: NDArray[np.bool_], truth: NDArray[np.bool_]) -> tuple[float, float]:
    right = said == truth
    return float(right.mean()), float(np.mean([right[truth == kind].mean() for kind in (False, True)]))


def without_framework(foundry: Path, logs: Sequence[LabelledLog], examples: Sequence[Example]) -> Iterator[str]:
    """Each framework of the foundry, judged by what was learnt without it and without the families it shares."""
    lines = gzip.decompress(foundry.read_bytes()).splitlines()
    framework = {str(record["id"]): str(record.get("framework", "")) for record in map(json.loads, lines)}
    rows = defaultdict(list)
    for i, example in enumerate(examples):
        if example.group.startswith("foundry/"):
            rows[framework[example.id]].append(i)
    yield "### The foundry, leaving one framework out of what is learnt\n"
    yield "| framework | logs | linear alone | rules and linear |\n|---|---|---|---|"
    alone, product = [], []
    for name, judged in sorted(rows.items(), key=lambda item: -len(item[1])):
        families = {examples[i].group for i in judged}
        model = LINEAR.fit([example for example in examples if example.group not in families])
        z = _scores(model, [examples[i] for i in judged])
        truth = np.array([examples[i].transient for i in judged])
        alone.append((z > 0) == truth)
        product.append((np.array([_p(logs[i], s) for i, s in zip(judged, z, strict=True)]) > 0.5) == truth)
        if len(judged) >= 5:
            yield f"| {name} | {len(judged)} | {alone[-1].mean():.3f} | {product[-1].mean():.3f} |"
    counts = sum(map(len, alone))
    means = [np.concatenate(found).mean() for found in (alone, product)]
    yield f"| all {len(rows)}, also those with fewer than 5 logs | {counts} | {means[0]:.3f} | {means[1]:.3f} |\n"


class _Once:
    """A classifier that fits equal examples once: modes begin alike, and ensembles have members in common."""

    def __init__(self, classifier: Classifier) -> None:
        self.name = classifier.name
        self._classifier = classifier
        self._fitted: dict[tuple[tuple[str, bool], ...], Model] = {}

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Model:
        key = tuple((example.id, example.transient) for example in examples)
        if key not in self._fitted:
            self._fitted[key] = self._classifier.fit(examples, seed)
        return self._fitted[key]

    def load(self, data: bytes, source: str) -> Model:
        return self._classifier.load(data, source)


def protocol(
    title: str, logs: Sequence[LabelledLog], examples: Sequence[Example], learners: Sequence[str], orders: int
) -> Iterator[str]:
    """Sibylla's protocol: the first member of each ensemble, before and after 8 rounds of learning by itself."""
    texts = {log.id: log for log in logs}
    known = {name: _Once(classifier_named(name)) for name in (*learners, "rules")}
    yield f"### {title}: Sibylla's protocol, judged on logs of groups never taught, mean of several orders\n"
    yield (
        "| ensemble (first member examined) | orders | labels by | labels wrong | balanced accuracy after 20 % "
        "| after 8 rounds | accuracy | after | deterministic P / R | transient P / R |\n" + "|---" * 10 + "|"
    )
    for name, members in ENSEMBLES.items():
        if not set(members) <= set(known):
            continue
        slow = bool(SLOW & set(members))
        count = min(SLOW_ORDERS, orders) if slow else orders
        for mode in MODES:
            if slow and mode == "outcome":
                continue
            runs = []
            for order in range(count):
                rng = np.random.default_rng([11, order])
                stream, aside = _stream(examples, rng)
                told = rounds(stream, aside, [known[member] for member in members], mode, rng)
                said = _verdicts(texts) if name == OURS else _leanings
                runs.append(_examined(told, aside, said))
            yield f"| {name} | {count} | {mode} | " + " | ".join(_cells(runs)) + " |"
    yield ""


def _stream(examples: Sequence[Example], rng: Generator) -> tuple[list[Example], list[Example]]:
    """A stream whose first fifth shows both kinds, and examples of other groups, of both kinds."""
    groups = sorted({example.group for example in examples})
    while True:
        held = set(rng.permutation(groups)[: round(ASIDE * len(groups))].tolist())
        aside = [example for example in examples if example.group in held]
        rest = [example for example in examples if example.group not in held]
        stream = [rest[i] for i in rng.permutation(len(rest))]
        first = {example.transient for example in stream[: round(0.2 * len(stream))]}
        if len(first) == len({example.transient for example in aside}) == 2:
            return stream, aside


Examiner = Callable[[Model, Sequence[Example]], NDArray[np.bool_]]


def _leanings(model: Model, examples: Sequence[Example]) -> NDArray[np.bool_]:
    """Which of them a model by itself calls transient."""
    return _scores(model, examples) > 0


def _verdicts(logs: Mapping[str, LabelledLog]) -> Examiner:
    """Which of them a verdict with that model calls transient."""
    return lambda model, examples: np.array(
        [_p(logs[e.id], z) > 0.5 for e, z in zip(examples, _scores(model, examples), strict=True)]
    )


def _examined(told: Sequence[Round], aside: Sequence[Example], said: Examiner) -> list[float]:
    """Share of labels that are wrong; accuracies before and after; precision and recall after."""
    truth = np.array([example.transient for example in aside])
    before, after = (said(told[which].members[0], aside) for which in (0, -1))
    labelled, wrong = (sum(values) for values in zip(*((r.labelled, r.wrong) for r in told[1:]), strict=True))
    (accuracy, balanced), (accuracy_after, balanced_after) = (_accuracies(which, truth) for which in (before, after))
    shares = [
        share
        for kind in (False, True)
        for hit in [((after == kind) & (truth == kind)).sum()]
        for share in (hit / max(1, (after == kind).sum()), hit / (truth == kind).sum())
    ]
    return [wrong / max(1, labelled), balanced, balanced_after, accuracy, accuracy_after, *shares]


def _cells(runs: Sequence[Sequence[float]]) -> list[str]:
    mean = np.mean(runs, axis=0)
    return [*(f"{x:.3f}" for x in mean[:5]), f"{mean[5]:.2f} / {mean[6]:.2f}", f"{mean[7]:.2f} / {mean[8]:.2f}"]
