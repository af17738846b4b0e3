"""Train a model that says how failures lean.

    python -m perdure.triage.train --data train.jsonl foundry.jsonl.gz --out src/perdure/triage/data/linear.npz

Deterministic: the same inputs give the same bytes. A JSON card beside the model says what it was made from.
``--thresholds FILE`` writes the thresholds of the verdict that go with it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import PerdureError
from perdure.triage.classifiers.protocol import Classifier, Example, Reading
from perdure.triage.classifiers.registry import NAMES, classifier_named
from perdure.triage.classifiers.regression import group_folds
from perdure.triage.conformal import Thresholds, thresholds
from perdure.triage.judge import judge
from perdure.triage.labelled import LabelledLog, read_logs
from perdure.triage.verdict import Verdict

FOLDS = 20


def held_out(classifier: Classifier, examples: Sequence[Example], folds: int = FOLDS) -> NDArray[np.float64]:
    """Log-odds of each example by a model that saw nothing of its group."""
    scores = np.zeros(len(examples))
    for test in group_folds([example.group for example in examples], folds):
        model = classifier.fit([example for example, left_out in zip(examples, test, strict=True) if not left_out])
        for i in map(int, np.flatnonzero(test)):
            scores[i] = model.log_odds(examples[i].reading)
    return scores


@dataclass(frozen=True, slots=True)
class Said:
    """The log-odds that a model gave which had not seen this log's group."""

    z: float

    def log_odds(self, reading: Reading) -> float:  # noqa: ARG002
        return self.z


def verdicts(logs: Sequence[LabelledLog], score: NDArray[np.float64]) -> list[Verdict]:
    """The verdict on each log by the rules and a model that said `score` of it, shape (n,)."""
    return [judge(log.text.encode("utf-8", "replace"), model=Said(z)) for log, z in zip(logs, score, strict=True)]


def fitting_thresholds(logs: Sequence[LabelledLog], score: NDArray[np.float64]) -> Thresholds:
    """The thresholds for verdicts by the rules and a model like the one whose held-out scores these are."""
    p = np.array([verdict.p_transient for verdict in verdicts(logs, score)])
    return thresholds(p, np.array([log.transient for log in logs]))


def card(
    classifier: Classifier,
    examples: Sequence[Example],
    score: NDArray[np.float64],
    model: bytes,
    command: str,
    folds: int = FOLDS,
) -> dict[str, Any]:
    """What is to be known of a model: its making, its inputs, and its figures on groups it had not seen."""
    transient = np.array([example.transient for example in examples])
    own = np.array([example.group.startswith("foundry/") for example in examples])
    return {
        "command": command,
        "classifier": classifier.name,
        "sha256": hashlib.sha256(model).hexdigest(),
        "examples": {name: _counts(transient[part]) for name, part in (("foundry", own), ("real", ~own))},
        "groups": len({example.group for example in examples}),
        "cross_validation": {
            "what": f"the model alone, cut at log-odds 0, in {folds} folds that tear no repository or program family",
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
    parser.add_argument("--thresholds", type=Path, help="where the thresholds of the verdict go")
    parser.add_argument("--folds", type=int, default=FOLDS, help="of the cross-validation, for networks few")
    options = parser.parse_args(arguments)
    try:
        classifier = classifier_named(options.classifier)
        logs = [log for path in options.data for log in read_logs(path)]
        examples = [log.example for log in logs]
        model = classifier.fit(examples).save()
    except PerdureError as err:
        parser.error(str(err))
    options.out.write_bytes(model)
    score = held_out(classifier, examples, options.folds)
    names = " ".join(path.name for path in options.data)
    command = f"python -m perdure.triage.train --data {names} --out {options.out.name}"
    made = card(classifier, examples, score, model, command, options.folds)
    if options.thresholds:
        options.thresholds.write_text(fitting_thresholds(logs, score).to_json())
    options.out.with_suffix(".json").write_text(json.dumps(made, indent=2) + "\n")
    sys.stdout.write(f"{options.out}: {len(examples)} examples, {len(model)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
