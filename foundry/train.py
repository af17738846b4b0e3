"""Train a model that says how failures lean.

    python -m foundry.train --data train.jsonl foundry.jsonl.gz --out src/perdure/triage/data/linear.npz

Deterministic: the same inputs give the same bytes. A JSON card beside the model says what it was made from, and
which share of verdicts was wrong on logs that neither model nor thresholds had seen. ``--thresholds FILE`` writes the
thresholds of the verdict that go with it, as if nobody had written a rule from the judged logs either (`left_out`), and
in the same file the command and the SHA-256 of all that they come from. Of each of the foundry's records
``--variations`` are learnt beside it, and never judged. ``make thresholds`` makes what Perdure ships.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foundry.left_out import LeftOut
from foundry.records import published
from foundry.vary import vary
from perdure.errors import PerdureError
from perdure.triage.classifiers.protocol import Classifier, Example, Reading
from perdure.triage.classifiers.registry import NAMES, classifier_named
from perdure.triage.classifiers.regression import group_folds
from perdure.triage.conformal import ALPHA_DETERMINISTIC, ALPHA_TRANSIENT, Thresholds, thresholds
from perdure.triage.evidence.rule import WrittenFrom
from perdure.triage.judge import judge
from perdure.triage.labelled import LabelledLog, read_logs
from perdure.triage.verdict import Label, Verdict

FOLDS = 20
VARIATIONS = 1
TABLES = ("rules.toml", "catalogue.toml", "grammar.toml")
"""What the verdicts hang on whose probabilities the thresholds cut."""

OWN = "foundry/"
"""The groups of the foundry's records begin so."""


def variations(logs: Sequence[LabelledLog], count: int = VARIATIONS) -> list[Example]:
    """So many variations of each of the logs that is one of the foundry's published records, to learn from."""
    records = {record.id: record for record in published()}
    known = [records[log.id] for log in logs if log.group.startswith(OWN) and log.id in records]
    varied = (vary(record, seed) for record in known for seed in range(1, count + 1))
    return [LabelledLog(each.id, each.source, each.transient, each.text).example for each in varied]


def held_out(
    classifier: Classifier, examples: Sequence[Example], folds: int = FOLDS, beside: Sequence[Example] = ()
) -> NDArray[np.float64]:
    """Log-odds of each example by a model that saw nothing of its group; those `beside` are learnt and not judged."""
    scores = np.zeros(len(examples))
    for test in group_folds([example.group for example in examples], folds):
        judged = {example.group for example, inside in zip(examples, test, strict=True) if inside}
        model = classifier.fit([example for example in (*examples, *beside) if example.group not in judged])
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
    """The verdict on each log by a model that said `score` of it, shape (n,).

    Rules are without the wordings that its own group alone motivated.
    """
    raw = [log.text.encode("utf-8", "replace") for log in logs]
    found: list[Verdict | None] = [None] * len(logs)
    left = LeftOut([log.group for log in logs], raw)
    for group in sorted({log.group for log in logs}):
        source = WrittenFrom.FOUNDRY if group.startswith(OWN) else WrittenFrom.LOG
        rules = left.without_motivated_by(group, source)
        for i in (i for i, log in enumerate(logs) if log.group == group):
            found[i] = judge(raw[i], model=Said(score[i]), rules=rules)
    return [verdict for verdict in found if verdict is not None]


def sets_of(groups: Sequence[str]) -> NDArray[np.str_]:
    """Which set each group is of: the foundry, or real logs."""
    return np.array(["foundry" if group.startswith(OWN) else "real" for group in groups])


def promise(
    logs: Sequence[LabelledLog], p: NDArray[np.float64]
) -> tuple[Thresholds, dict[str, dict[str, float | None]]]:
    """The thresholds for verdicts of these held-out probabilities, and how often such thresholds err.

    The errors are counted on each group with thresholds from all others: for each set the share of the transient that
    is stopped, of the deterministic that is retried, and of all that is unsure.
    """
    truth, groups = np.array([log.transient for log in logs]), np.array([log.group for log in logs])
    sets, labels = sets_of(groups.tolist()), np.full(len(logs), Label.UNSURE, dtype=object)
    for group in np.unique(groups):
        test = groups == group
        cut = thresholds(p[~test], truth[~test], sets=sets[~test], families=groups[~test])
        labels[test] = [cut.label(x) for x in p[test]]
    errors = {str(name): _errors(labels[sets == name], truth[sets == name]) for name in np.unique(sets)}
    return thresholds(p, truth, sets=sets, families=groups), errors


def _errors(labels: NDArray[np.object_], truth: NDArray[np.bool_]) -> dict[str, float | None]:
    return {
        "transient_stopped": _share(labels[truth] == Label.DETERMINISTIC),
        "deterministic_retried": _share(labels[~truth] == Label.TRANSIENT),
        "unsure": _share(labels == Label.UNSURE),
    }


def made_from(data: Sequence[Path]) -> dict[str, str]:
    """The SHA-256 of the logs and of the tables that thresholds come from, by file name."""
    tables = resources.files("perdure.triage")
    inputs = {path.name: path.read_bytes() for path in data} | {t: (tables / t).read_bytes() for t in TABLES}
    return {name: hashlib.sha256(content).hexdigest() for name, content in inputs.items()}


def card(
    classifier: Classifier,
    examples: Sequence[Example],
    score: NDArray[np.float64],
    model: bytes,
    command: str,
    folds: int = FOLDS,
    beside: int = 0,
) -> dict[str, Any]:
    """What is to be known of a model: its making, its inputs, and its figures on groups it had not seen."""
    transient = np.array([example.transient for example in examples])
    own = sets_of([example.group for example in examples]) == "foundry"
    return {
        "command": command,
        "classifier": classifier.name,
        "sha256": hashlib.sha256(model).hexdigest(),
        "examples": {name: _counts(transient[part]) for name, part in (("foundry", own), ("real", ~own))},
        "variations": beside,
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
    return {
        "accuracy": _share(right),
        "deterministic_recall": _share(right[~transient]),
        "transient_recall": _share(right[transient]),
    }


def _share(found: NDArray[np.bool_]) -> float | None:
    return round(float(found.mean()), 3) if len(found) else None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m foundry.train", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="JSON lines: id, source, label and text")
    parser.add_argument("--out", type=Path, required=True, help="where the model goes; its card goes beside it")
    parser.add_argument("--classifier", choices=NAMES, default="linear")
    parser.add_argument("--thresholds", type=Path, help="where the thresholds of the verdict go")
    parser.add_argument("--variations", type=int, default=VARIATIONS, help="of each of the foundry's records")
    parser.add_argument("--folds", type=int, default=FOLDS, help="of the cross-validation, for networks few")
    options = parser.parse_args(arguments)
    try:
        classifier = classifier_named(options.classifier)
        logs = [log for path in options.data for log in read_logs(path)]
        examples = [log.example for log in logs]
        beside = variations(logs, options.variations)
        model = classifier.fit([*examples, *beside]).save()
    except PerdureError as err:
        parser.error(str(err))
    options.out.write_bytes(model)
    score = held_out(classifier, examples, options.folds, beside)
    names = " ".join(path.name for path in options.data)
    command = f"python -m foundry.train --data {names} --out {options.out.name}"
    if options.thresholds:
        command += f" --thresholds {options.thresholds.name}"
    made = card(classifier, examples, score, model, command, options.folds, len(beside))
    if options.thresholds:
        p = np.array([verdict.p_transient for verdict in verdicts(logs, score)])
        fitted, errors = promise(logs, p)
        source = {"command": command, "inputs": made_from(options.data)}
        options.thresholds.write_text(fitted.to_json(source))
        made["promise"] = {
            "transient_stopped_at_most": ALPHA_TRANSIENT,
            "deterministic_retried_at_most": ALPHA_DETERMINISTIC,
            "what": "wordings of rules that only the judged repository or family motivated were left out",
            "held_out": errors,
        }
    options.out.with_suffix(".json").write_text(json.dumps(made, indent=2) + "\n")
    sys.stdout.write(f"{options.out}: {len(examples)} examples, {len(model)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
