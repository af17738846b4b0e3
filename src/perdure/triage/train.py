"""Train the linear model: balanced logistic regression by L-BFGS, calibrated on groups it has not seen.

    python -m perdure.triage.train --data train.jsonl foundry.jsonl.gz --out src/perdure/triage/data/linear.npz

Deterministic: the same inputs give the same bytes. A JSON card beside the model says what it was made from.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from perdure.errors import InputError
from perdure.triage.clean import LogText
from perdure.triage.excerpt import last_block, tail
from perdure.triage.linear import BUCKETS, Features, Linear, features
from perdure.triage.rules import own_rules
from perdure.triage.verdict import Label


@dataclass(frozen=True, slots=True)
class Example:
    """A log whose truth is known; examples of one `group` are never split between training and test."""

    id: str
    group: str
    transient: bool
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model is fitted."""

    penalty: float = 1.0  # on the squared weights
    calibration_folds: int = 8


def read_examples(path: Path) -> list[Example]:
    """Read JSON lines (also gzipped) with id, source, label and text. Raises `InputError` that names the line."""
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    except (OSError, EOFError, gzip.BadGzipFile) as err:
        raise InputError(str(path), f"cannot be read ({err})", "Name a file of JSON lines") from err
    return [_example(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _example(line: bytes, where: str) -> Example:
    mend = 'Write {"id", "source", "label": "deterministic" or "transient", "text"}'
    try:
        record: dict[str, Any] = json.loads(line)
        label = Label(record["label"])
        group = str(record["source"]).split("@")[0]
        example = Example(str(record["id"]), group, label is Label.TRANSIENT, str(record["text"]))
    except (ValueError, TypeError) as err:
        raise InputError(where, f"not a labelled log ({err})", mend) from err
    except KeyError as err:
        raise InputError(where, f"{err} is missing", mend) from err
    if label is Label.UNSURE:
        raise InputError(where, "an unsure record teaches nothing", mend)
    return example


def vector(example: Example) -> Features:
    """The features of an example, made just as for a verdict."""
    text = LogText.of(example.text.encode("utf-8", "replace"))
    hits = last_block(own_rules().hits(text))
    return features(tail(text), [hit.cause for hit in hits])


def fit(vectors: Sequence[Features], transient: NDArray[np.bool_], groups: Sequence[str], recipe: Recipe) -> Linear:
    """Fit weights to all examples, and the calibration to scores of groups that were held out."""
    matrix = _matrix(vectors)
    held_out = np.zeros(len(vectors))
    for test in group_folds(groups, recipe.calibration_folds):
        train = ~test
        if transient[train].any() and not transient[train].all():
            weights, bias = _regress(matrix[train], transient[train], recipe.penalty)
            held_out[test] = matrix[test] @ weights + bias
    slope, offset = _calibrate(held_out, transient)
    weights, bias = _regress(matrix, transient, recipe.penalty)
    return Linear(weights.astype(np.float16).astype(np.float32), bias, slope, offset)


def group_folds(groups: Sequence[str], count: int) -> Iterator[NDArray[np.bool_]]:
    """Yield test masks: whole groups, dealt by the digest of their name, so that folds do not hang on the order."""
    fold = np.array([int.from_bytes(hashlib.sha256(g.encode()).digest()[:4], "big") % count for g in groups])
    for k in range(count):
        if (fold == k).any():
            yield fold == k


def _matrix(vectors: Sequence[Features]) -> Any:
    """(n_examples, BUCKETS) sparse, weighted by smoothed inverse document frequency, as `Linear` has it built in."""
    starts = np.concatenate([[0], np.cumsum([len(v.columns) for v in vectors])])
    columns = np.concatenate([v.columns for v in vectors])
    values = np.concatenate([v.values for v in vectors])
    return sparse.csr_matrix((values, columns, starts), shape=(len(vectors), BUCKETS))


def _regress(matrix: Any, transient: NDArray[np.bool_], penalty: float) -> tuple[NDArray[np.float64], float]:
    """Class-balanced logistic regression: minimise mean log-loss + penalty / (2 n) * |idf-scaled w|^2."""
    n = matrix.shape[0]
    seen = np.asarray((matrix > 0).sum(axis=0)).ravel()
    idf = np.log((1.0 + n) / (1.0 + seen)) + 1.0
    scaled = matrix @ sparse.diags(idf)
    sign = np.where(transient, 1.0, -1.0)
    share = np.where(transient, 0.5 / max(1, transient.sum()), 0.5 / max(1, (~transient).sum()))

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (scaled @ w[:-1] + w[-1])
        value = float(share @ np.logaddexp(0.0, -margin)) + penalty / (2 * n) * float(w[:-1] @ w[:-1])
        pull = -sign * share / (1.0 + np.exp(np.clip(margin, -50, 50)))
        return value, np.append(scaled.T @ pull + penalty / n * w[:-1], pull.sum())

    found = minimize(loss, np.zeros(BUCKETS + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return found.x[:-1] * idf, float(found.x[-1])


def _calibrate(score: NDArray[np.float64], transient: NDArray[np.bool_]) -> tuple[float, float]:
    """Platt's slope and offset, both classes weighted alike; the slope is kept in a sane range."""
    sign = np.where(transient, 1.0, -1.0)
    share = np.where(transient, 0.5 / max(1, transient.sum()), 0.5 / max(1, (~transient).sum()))

    def loss(x: NDArray[np.float64]) -> float:
        return float(share @ np.logaddexp(0.0, -sign * (x[0] * score + x[1]))) + 1e-3 * float(x @ x)

    found = minimize(loss, np.array([1.0, 0.0]), method="L-BFGS-B", bounds=[(0.05, 5.0), (-3.0, 3.0)])
    return float(found.x[0]), float(found.x[1])


def cross_validate(
    examples: Sequence[Example], recipe: Recipe, of: Callable[[Example], Features] = vector
) -> NDArray[np.float64]:
    """Log-odds of each example by a model that saw nothing of its group."""
    vectors = [of(example) for example in examples]
    transient = np.array([example.transient for example in examples])
    groups = [example.group for example in examples]
    scores = np.zeros(len(examples))
    for test in group_folds(groups, max(2, len(set(groups)))):
        train = np.flatnonzero(~test)
        model = fit([vectors[i] for i in train], transient[train], [groups[i] for i in train], recipe)
        for i in np.flatnonzero(test):
            scores[i] = model.log_odds_of(vectors[i])
    return scores


def train(examples: Sequence[Example], recipe: Recipe) -> Linear:
    """Fit the model to all examples."""
    transient = np.array([example.transient for example in examples])
    if transient.all() or not transient.any():
        raise InputError("training data", "all examples have one label", "Give deterministic and transient ones")
    return fit([vector(e) for e in examples], transient, [e.group for e in examples], recipe)


def card(examples: Sequence[Example], recipe: Recipe, model: bytes, command: str) -> dict[str, Any]:
    """What is to be known of a model: its making, its inputs, and its figures on groups it had not seen."""
    score = cross_validate(examples, recipe)
    transient = np.array([example.transient for example in examples])
    own = np.array([example.group.startswith("foundry/") for example in examples])
    return {
        "command": command,
        "sha256": hashlib.sha256(model).hexdigest(),
        "penalty": recipe.penalty,
        "examples": {name: _counts(transient[part]) for name, part in (("foundry", own), ("real", ~own))},
        "groups": len({example.group for example in examples}),
        "cross_validation": {
            "what": "the model alone, cut at log-odds 0, without the source repository or program family judged",
            **{name: _figures(score[part], transient[part]) for name, part in (("foundry", own), ("real", ~own))},
        },
    }


def _counts(transient: NDArray[np.bool_]) -> dict[str, int]:
    return {"deterministic": int((~transient).sum()), "transient": int(transient.sum())}


def _figures(score: NDArray[np.float64], transient: NDArray[np.bool_]) -> dict[str, float | None]:
    right = (score > 0) == transient

    def share(part: NDArray[np.bool_]) -> float | None:
        return round(float(right[part].mean()), 3) if part.any() else None

    every = np.ones(len(right), dtype=bool)
    return {"accuracy": share(every), "deterministic_recall": share(~transient), "transient_recall": share(transient)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perdure.triage.train", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="JSON lines: id, source, label and text")
    parser.add_argument("--out", type=Path, required=True, help="where the model goes; its card goes beside it")
    parser.add_argument("--penalty", type=float, default=Recipe().penalty)
    options = parser.parse_args(arguments)
    recipe = Recipe(penalty=options.penalty)
    try:
        examples = [example for path in options.data for example in read_examples(path)]
        model = train(examples, recipe).save()
    except InputError as err:
        parser.error(str(err))
    options.out.write_bytes(model)
    names = " ".join(path.name for path in options.data)
    made = card(examples, recipe, model, f"python -m perdure.triage.train --data {names} --out {options.out.name}")
    options.out.with_suffix(".json").write_text(json.dumps(made, indent=2) + "\n")
    sys.stdout.write(f"{options.out}: {len(examples)} examples, {len(model)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
