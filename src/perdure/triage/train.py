"""Train a model that says how failures lean.

    python -m perdure.triage.train --data train.jsonl foundry.jsonl.gz --out src/perdure/triage/data/linear.npz

Deterministic: the same inputs give the same bytes. A JSON card beside the model says what it was made from.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import PerdureError
from perdure.triage.classifiers.protocol import Classifier, Example
from perdure.triage.classifiers.registry import NAMES, classifier_named
from perdure.triage.classifiers.regression import group_folds
from perdure.triage.labelled import read_logs

FOLDS = 20


def held_out(classifier: Classifier, examples: Sequence[Example], folds: int = FOLDS) -> NDArray[np.float64]:
    """Log-odds of each example by a model that saw nothing of its group."""
    scores = np.zeros(len(examples))
    for test in group_folds([example.group for example in examples], folds):
        model = classifier.fit([example for example, left_out in zip(examples, test, strict=True) if not left_out])
        for i in map(int, np.flatnonzero(test)):
            scores[i] = model.log_odds(examples[i].reading)
    return scores


def card(classifier: Classifier, examples: Sequence[Example], model: bytes, command: str) -> dict[str, Any]:
    """What is to be known of a model: its making, its inputs, and its figures on groups it had not seen."""
    score = held_out(classifier, examples)
    transient = np.array([example.transient for example in examples])
    own = np.array([example.group.startswith("foundry/") for example in examples])
    return {
        "command": command,
        "classifier": classifier.name,
        "sha256": hashlib.sha256(model).hexdigest(),
        "examples": {name: _counts(transient[part]) for name, part in (("foundry", own), ("real", ~own))},
        "groups": len({example.group for example in examples}),
        "cross_validation": {
            "what": f"the model alone, cut at log-odds 0, in {FOLDS} folds that tear no repository or program family",
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
    parser.add_argument("--classifier", choices=NAMES, default="linear")
    options = parser.parse_args(arguments)
    try:
        classifier = classifier_named(options.classifier)
        examples = [log.example for path in options.data for log in read_logs(path)]
        model = classifier.fit(examples).save()
    except PerdureError as err:
        parser.error(str(err))
    options.out.write_bytes(model)
    names = " ".join(path.name for path in options.data)
    made = card(classifier, examples, model, f"python -m perdure.triage.train --data {names} --out {options.out.name}")
    options.out.with_suffix(".json").write_text(json.dumps(made, indent=2) + "\n")
    sys.stdout.write(f"{options.out}: {len(examples)} examples, {len(model)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
