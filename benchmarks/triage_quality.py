"""How right verdicts are: python benchmarks/triage_quality.py [--data DIR] [--out TABLE.md]

Every log is judged with a model that saw nothing of its source repository or program family. The rules are the same
for all: they were written by people who had read the real logs, so rows with rules are optimistic for those; rows
with the model alone are not. DIR holds failure-logs/train.jsonl (default: PERDURE_DATA, or ../shared/data).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.triage.classifiers.linear import LINEAR
from perdure.triage.judge import Leaning, NoModel, judge
from perdure.triage.labelled import LabelledLog, read_logs
from perdure.triage.train import Said, held_out
from perdure.triage.verdict import Label, Verdict

ROOT = Path(__file__).resolve().parents[1]
CALM = "".join(f"2025-01-01 00:00:01 INFO train: step {i} loss {3 / (i + 1):.4f} lr 1e-4\n" for i in range(50_000))


@dataclass(frozen=True)
class Outcome:
    """What a method said of each log: a probability, and a label."""

    p: NDArray[np.float64]
    labels: list[Label]


def _verdicts(examples: Sequence[LabelledLog], model: Callable[[int], Leaning], before: str = "") -> Outcome:
    found: list[Verdict] = [judge((before + e.text).encode(), model=model(i)) for i, e in enumerate(examples)]
    return Outcome(np.array([v.p_transient for v in found]), [v.label for v in found])


def _row(name: str, truth: NDArray[np.bool_], outcome: Outcome) -> str:
    said = outcome.p > 0.5
    right = said == truth
    recalls = [right[~truth].mean(), right[truth].mean()]
    sure = np.argsort(-abs(outcome.p - 0.5), kind="stable")[: int(0.8 * len(truth))]
    stopped = np.array([label is Label.DETERMINISTIC for label in outcome.labels])
    retried = np.array([label is Label.TRANSIENT for label in outcome.labels])
    cells = [
        f"{right.mean():.3f} ({_interval(right)})",
        f"{np.mean(recalls):.3f}",
        f"{recalls[0]:.3f} ({_interval(right[~truth])})",
        f"{recalls[1]:.3f} ({_interval(right[truth])})",
        f"{right[sure].mean():.3f}",
        f"{stopped[truth].mean():.3f}",
        f"{retried[~truth].mean():.3f}",
        f"{1 - (stopped | retried).mean():.3f}",
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def _interval(right: NDArray[np.bool_]) -> str:
    """Wilson's interval for a share, 95 %."""
    n, share, z = len(right), float(right.mean()), 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return f"{centre - half:.2f}-{centre + half:.2f}"


def table(examples: Sequence[LabelledLog], score: NDArray[np.float64], title: str) -> list[str]:
    """A table of methods for one set of logs; `score` are held-out log-odds of the model."""
    truth = np.array([example.transient for example in examples])
    p = 1 / (1 + np.exp(-np.clip(score, -30, 30)))
    alone = Outcome(p, [Label.TRANSIENT if x > 0.6 else Label.DETERMINISTIC if x <= 0.35 else Label.UNSURE for x in p])
    stop = Outcome(np.zeros(len(truth)), [Label.DETERMINISTIC] * len(truth))
    return [
        f"### {title}: {int((~truth).sum())} deterministic, {int(truth.sum())} transient",
        "",
        "| method | accuracy (95 %) | balanced | deterministic recall | transient recall "
        "| accuracy, surest 80 % | transient stopped | deterministic retried | unsure |",
        "|---|---|---|---|---|---|---|---|---|",
        _row("always stop", truth, stop),
        _row("model alone, group held out", truth, alone),
        _row("rules alone", truth, _verdicts(examples, lambda i: NoModel())),
        _row("rules and model, group held out", truth, _verdicts(examples, lambda i: Said(score[i]))),
        _row("the same under 50,000 calm lines", truth, _verdicts(examples, lambda i: Said(score[i]), CALM)),
        "",
    ]


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    foundry = read_logs(ROOT / "src" / "perdure" / "triage" / "data" / "foundry.jsonl.gz")
    path = options.data / "failure-logs" / "train.jsonl"
    real = read_logs(path) if path.exists() else []
    score = held_out(LINEAR, [log.example for log in (*real, *foundry)])
    lines = ["Made by `python benchmarks/triage_quality.py`.", ""]
    if real:
        lines += table(real, score[: len(real)], "Real log files, by source repository")
    else:
        lines += [f"No real logs at {path}: the foundry alone.", ""]
    lines += table(foundry, score[len(real) :], "The foundry's programs, by family")
    text = "\n".join(lines)
    if options.out:
        options.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
