"""How right verdicts are, and how much triage learns: python -m benchmarks.triage_quality [--out TABLE.md]

Every log is judged by models that saw nothing of its source repository or program family. The rules are the same for
all: they were written by people who had read the logs, so rows with rules are optimistic; rows of models alone are
not, and "rules unseen" leaves out the rules that nothing outside the judged fold shows, as if nobody had written them.
DIR/failure-logs/train.jsonl holds the real logs (default of DIR: PERDURE_DATA, or ../shared/data). Rows of GRU and
LSTM need PyTorch (extra rnn) and are left out without it.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks import triage_learning
from foundry.records import published
from foundry.train import OWN, VARIATIONS, Said, held_out, variations
from foundry.vary import vary
from perdure.triage.classifiers.linear import LINEAR
from perdure.triage.classifiers.protocol import Example
from perdure.triage.classifiers.registry import classifier_named
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import Leaning, NoModel, judge
from perdure.triage.labelled import LabelledLog, read_logs
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
FOUNDRY = ROOT / "src" / "perdure" / "triage" / "data" / "foundry.jsonl.gz"
CALM = "".join(f"2025-01-01 00:00:01 INFO train: step {i} loss {3 / (i + 1):.4f} lr 1e-4\n" for i in range(50_000))
KINDS = {False: Label.DETERMINISTIC, True: Label.TRANSIENT}
SLOW_FOLDS = 3  # for networks, which learn no variations either: each fold takes minutes
RETRY_FROM, STOP_TO = 0.6, 0.35
"""What a model alone is taken to say: expected cost makes a retry the cheaper mistake."""
LEARNERS = ("cluster", "gru", "lstm", "linear")
TIMED_LOGS = 5000
AUGMENTED = (0, VARIATIONS, 4)

TRANSIENT_WORDS = re.compile(
    r"timed? ?out|connection (?:reset|refused|closed|lost)|reset by peer|broken pipe|unreachable|temporar|preempt|xid"
    r"|ecc error|nvlink|nccl error|node fail|heartbeat|segmentation fault|bus error|address already in use|too many req"
    r"|service unavailable|stale file",
    re.I,
)
DETERMINISTIC_WORDS = re.compile(
    r"(?:type|value|key|index|attribute|name|syntax|import|modulenotfound|assertion|filenotfound|permission|notimpl"
    r"emented|zerodivision)\w*error|no such file|not found|out of memory|invalid|unrecognized|permission denied|shape"
    r"|mismatch|no space left|time limit|undefined|usage:|is not defined",
    re.I,
)


@dataclass(frozen=True)
class Outcome:
    """What a method said of each log: a probability, and a label."""

    p: NDArray[np.float64]
    labels: list[Label]


@dataclass(frozen=True)
class Set:
    """Logs of one kind, what is read of them, and the held-out log-odds of each learner."""

    title: str
    logs: Sequence[LabelledLog]
    examples: Sequence[Example]
    scores: Mapping[str, NDArray[np.float64]]
    unseen: Outcome  # of the product without the rules that only the judged fold shows

    @property
    def truth(self) -> NDArray[np.bool_]:
        return np.array([log.transient for log in self.logs])


def _judged(logs: Sequence[LabelledLog], model: Callable[[int], Leaning], text: Callable[[str], str] = str) -> Outcome:
    found = [judge(text(log.text).encode("utf-8", "replace"), model=model(i)) for i, log in enumerate(logs)]
    return Outcome(np.array([v.p_transient for v in found]), [v.label for v in found])


def _alone(score: NDArray[np.float64]) -> Outcome:
    p = 1 / (1 + np.exp(-np.clip(score, -30, 30)))
    labels = [Label.TRANSIENT if x >= RETRY_FROM else Label.DETERMINISTIC if x <= STOP_TO else Label.UNSURE for x in p]
    return Outcome(p, labels)


def _constant(count: int, label: Label) -> Outcome:
    return Outcome(np.full(count, float(label is Label.TRANSIENT)), [label] * count)


def _keywords(logs: Sequence[LabelledLog]) -> Outcome:
    """The last line with a word of a list decides."""
    labels = [_last_word(log.text) for log in logs]
    p = {Label.TRANSIENT: 0.9, Label.DETERMINISTIC: 0.1, Label.UNSURE: 0.5}
    return Outcome(np.array([p[label] for label in labels]), labels)


def _last_word(text: str) -> Label:
    for line in reversed(text.split("\n")):
        if TRANSIENT_WORDS.search(line):
            return Label.TRANSIENT
        if DETERMINISTIC_WORDS.search(line):
            return Label.DETERMINISTIC
    return Label.UNSURE


def _interleaved(text: str) -> str:
    """Four ranks that fail alike, each some lines behind the one before."""
    lines, behind = text.split("\n"), 3
    rows = (
        f"[rank{rank}]: {lines[now - behind * rank]}"
        for now in range(len(lines) + 3 * behind)
        for rank in range(4)
        if 0 <= now - behind * rank < len(lines)
    )
    return "\n".join(rows)


HEAD = (
    "| method | accuracy (95 %) | balanced | deterministic P / R | transient P / R | accuracy, surest 80 % "
    "| transient stopped | deterministic retried | unsure |\n|---|---|---|---|---|---|---|---|---|"
)


def row(name: str, truth: NDArray[np.bool_], outcome: Outcome) -> str:
    """What a method said of the logs, as a row of `HEAD`."""
    said = outcome.p > 0.5
    right = said == truth
    sure = np.argsort(-abs(outcome.p - 0.5), kind="stable")[: int(0.8 * len(truth))]
    stopped = np.array([label is Label.DETERMINISTIC for label in outcome.labels])
    retried = np.array([label is Label.TRANSIENT for label in outcome.labels])
    cells = [
        f"{right.mean():.3f} ({interval(right)})",
        f"{np.mean([right[~truth].mean(), right[truth].mean()]):.3f}",
        _precision_recall(~said, ~truth),
        _precision_recall(said, truth),
        f"{right[sure].mean():.3f}",
        f"{stopped[truth].mean():.3f}",
        f"{retried[~truth].mean():.3f}",
        f"{1 - (stopped | retried).mean():.3f}",
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def _precision_recall(said: NDArray[np.bool_], truth: NDArray[np.bool_]) -> str:
    hit = (said & truth).sum()
    return f"{hit / said.sum():.2f} / {hit / truth.sum():.2f}" if said.any() else "- / 0.00"


def interval(right: NDArray[np.bool_]) -> str:
    """Wilson's interval for a share, 95 %."""
    n, share, z = len(right), float(right.mean()), 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return f"{centre - half:.2f}-{centre + half:.2f}"


def methods(data: Set) -> Iterator[str]:
    """The table of methods for one set."""
    truth, logs, linear = data.truth, data.logs, data.scores["linear"]
    product = "rules and linear (the product)"
    yield f"### {data.title}: {int((~truth).sum())} deterministic, {int(truth.sum())} transient\n"
    yield HEAD
    yield row("oracle", truth, Outcome(truth.astype(float), [KINDS[kind] for kind in truth]))
    yield row("always retry", truth, _constant(len(truth), Label.TRANSIENT))
    yield row("always stop", truth, _constant(len(truth), Label.DETERMINISTIC))
    yield row("keywords, last line that has one", truth, _keywords(logs))
    for name, score in data.scores.items():
        yield row(f"{name} alone", truth, _alone(score))
    yield row("rules alone", truth, _judged(logs, lambda i: NoModel()))
    yield row(product, truth, _judged(logs, lambda i: Said(linear[i])))
    yield row("the product, rules unseen", truth, data.unseen)
    yield ""


def fitted(examples: Sequence[Example], beside: Sequence[Example], fold: Sequence[NDArray[np.bool_]]) -> list[Leaning]:
    """The linear model of each fold, learnt from all groups outside it."""
    judged = [{e.group for e, inside in zip(examples, test, strict=True) if inside} for test in fold]
    return [LINEAR.fit([e for e in (*examples, *beside) if e.group not in groups]) for groups in judged]


def unseen(
    logs: Sequence[LabelledLog], models: Sequence[Leaning], fold: Sequence[NDArray[np.bool_]]
) -> list[tuple[float, Label]]:
    """What the product says of each log without the rules that only logs of its fold show."""
    book, found = own_rules(), {}
    raw = [log.text.encode("utf-8", "replace") for log in logs]
    shown = [{hit.cause.name for hit in book.hits(LogText.of(each))} for each in raw]
    for model, test in zip(models, fold, strict=True):
        inside, outside = (set().union(*(shown[i] for i in np.flatnonzero(part))) for part in (test, ~test))
        known = RuleBook(tuple(rule for rule in book.rules if rule.cause.name not in inside - outside))
        for i in map(int, np.flatnonzero(test)):
            verdict = judge(raw[i], model=model, rules=known)
            found[i] = verdict.p_transient, verdict.label
    return [found[i] for i in range(len(logs))]


def robustness(data: Set, models: Sequence[Leaning], fold: Sequence[NDArray[np.bool_]]) -> Iterator[str]:
    """The product when each log is buried or interleaved; the model reads the changed log too."""
    ways: dict[str, Callable[[str], str]] = {
        "as they are": str,
        "behind 50,000 ordinary lines": lambda text: CALM + text,
        "four ranks interleaved": _interleaved,
    }
    which = np.array(fold).argmax(axis=0)
    yield f"### {data.title}: the same, changed\n"
    yield HEAD
    for name, text in ways.items():
        yield row(name, data.truth, _judged(data.logs, lambda i: models[which[i]], text))
    yield ""


def augmentation(data: Set, parts: Mapping[str, slice], folds: int) -> Iterator[str]:
    """The linear model by how many variations of each of the foundry's records it learnt beside them."""
    yield "### Variations of the foundry's records, learnt beside them and never judged\n"
    yield "| variations of each | " + " | ".join(f"{name}: linear alone | product" for name in parts) + " |"
    yield "|---" * (1 + 2 * len(parts)) + "|"
    for count in AUGMENTED:
        known = data.scores["linear"] if count == VARIATIONS else None
        score = held_out(LINEAR, data.examples, folds, variations(data.logs, count)) if known is None else known
        p = _judged(data.logs, lambda i, z=score: Said(z[i])).p  # type: ignore[misc]
        cells = [
            f"{right.mean():.3f} / {np.mean([right[truth == kind].mean() for kind in (False, True)]):.3f}"
            for part in parts.values()
            for truth in [data.truth[part]]
            for right in ((score[part] > 0) == truth, (p[part] > 0.5) == truth)
        ]
        yield f"| {count} | " + " | ".join(cells) + " |"
    yield "\nAccuracy / balanced accuracy. Sibylla's 4,468 of 256 would be 16 of each.\n"


def many(examples: Sequence[Example]) -> list[Example]:
    """`TIMED_LOGS` examples: these, and as many variations of the foundry's records as that takes."""
    left = TIMED_LOGS - len(examples)
    records = published()
    varied = (vary(records[i % len(records)], 1 + i // len(records)) for i in range(left))
    return [*examples, *(LabelledLog(r.id, r.source, r.transient, r.text).example for r in varied)]


def timings(examples: Sequence[Example], logs: Sequence[LabelledLog], learners: Sequence[str]) -> Iterator[str]:
    """Processor time of learning and of saying."""
    read_s, lessons = _timed(lambda: many(examples))
    fit_s, _ = _timed(lambda: LINEAR.fit(lessons))
    yield f"### Processor time, one thread: {len(examples)} logs\n"
    yield (
        f"{len(lessons)} logs (foundry variations): {fit_s:.1f} s to train linear, after {read_s:.1f} s to make "
        "and reduce them.\n"
    )
    yield "| model | training, s | update with 10 logs, s | load, ms | log-odds of a log, ms (median) | file, KB |"
    yield "|---|---|---|---|---|---|"
    for name in learners:
        classifier = classifier_named(name)
        fit_s, model = _timed(lambda c=classifier: c.fit(examples))  # type: ignore[misc]
        update_s, _ = _timed(lambda m=model: m.update(examples[:10]))  # type: ignore[misc]
        data = model.save()
        load_s, loaded = _timed(lambda c=classifier, d=data, n=name: c.load(d, n))  # type: ignore[misc]
        loaded.log_odds(examples[0].reading)
        each = [_timed(lambda m=loaded, e=e: m.log_odds(e.reading))[0] for e in examples]  # type: ignore[misc]
        yield (
            f"| {name} | {fit_s:.1f} | {update_s:.2f} | {1e3 * load_s:.1f} | {1e3 * float(np.median(each)):.2f} "
            f"| {len(data) / 1e3:.0f} |"
        )
    raw = [log.text.encode("utf-8", "replace") for log in logs]
    whole = [_timed(lambda r=r: judge(r))[0] for r in raw]  # type: ignore[misc]
    yield (
        f"\nThe whole verdict, rules and linear: median {1e3 * float(np.median(whole)):.2f} ms over these logs "
        f"(median {np.median([len(r) for r in raw]) / 1e3:.1f} KB).\n"
    )


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def _folds_of(classifier: str, folds: int) -> int:
    return min(SLOW_FOLDS, folds) if classifier in triage_learning.SLOW else folds


def _read(path: Path) -> list[LabelledLog]:
    return read_logs(path) if path.exists() else []


def _parts(real: int) -> dict[str, slice]:
    return {
        "Real log files, by source repository": slice(real),
        "The foundry's programs, by family": slice(real, None),
    }


def _paired() -> set[str]:
    return {record.id for record in published() if record.pair}


def _among_pairs(data: Set, pairs: Sequence[int]) -> Iterator[str]:
    """The product where the same line stands for opposite reasons, and in the rest of the foundry."""
    rest = [i for i, log in enumerate(data.logs) if log.group.startswith(OWN) and i not in set(pairs)]
    yield "### The foundry's pairs, which print the same line for opposite reasons, and all others\n"
    yield HEAD
    for name, rows in (("pairs", pairs), ("all others", rest)):
        score = data.scores["linear"][rows]
        logs = [data.logs[i] for i in rows]
        yield row(f"{name} ({len(rows)})", data.truth[rows], _judged(logs, lambda i, z=score: Said(z[i])))  # type: ignore[misc]
    yield ""


def report(real: Sequence[LabelledLog], foundry: Sequence[LabelledLog], folds: int, orders: int) -> Iterator[str]:
    """The lines of all tables."""
    learners = [name for name in LEARNERS if name not in triage_learning.SLOW or find_spec("torch")]
    logs = [*real, *foundry]
    examples = [log.example for log in logs]
    beside = variations(logs)
    slow = triage_learning.SLOW
    scores = {
        name: held_out(classifier_named(name), examples, _folds_of(name, folds), () if name in slow else beside)
        for name in learners
    }
    masks = triage_learning.fold_masks(examples, folds)
    models = fitted(examples, beside, masks)
    without = unseen(logs, models, masks)
    parts = {title: part for title, part in _parts(len(real)).items() if logs[part]}
    whole = {"Both sets": slice(None)}
    everything, *sets = (
        Set(
            title,
            logs[part],
            examples[part],
            {name: score[part] for name, score in scores.items()},
            Outcome(np.array([p for p, _ in without[part]]), [label for _, label in without[part]]),
        )
        for title, part in {**whole, **parts}.items()
    )
    yield (
        f"Models learn from both sets, {folds} folds, and {VARIATIONS} variation of each of the foundry's records "
        f"(GRU, LSTM: {_folds_of('gru', folds)} folds, no variations); P precision, R recall.\n"
    )
    for data in sets:
        yield from methods(data)
    pairs = [i for i, log in enumerate(logs) if log.group.startswith(OWN) and log.id in _paired()]
    yield from _among_pairs(everything, pairs)
    yield from robustness(everything, models, masks)
    yield from augmentation(everything, parts, folds)
    for data in sets:
        yield from triage_learning.few_shots(data.title, data.logs, data.examples)
    yield from triage_learning.without_framework(FOUNDRY, logs, examples)
    for data in sets:
        yield from triage_learning.protocol(data.title, data.logs, data.examples, learners, orders)
    yield from timings(examples, logs, learners)


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--orders", type=int, default=4, help="of the stream in Sibylla's protocol")
    options = parser.parse_args()
    path = options.data / "failure-logs" / "train.jsonl"
    real = _read(path)
    foundry = read_logs(FOUNDRY)
    lines = ["Made by `make bench-triage` (`python -m benchmarks.triage_quality`)."]
    if not real:
        lines.append(f"No real logs at {path}: the foundry alone.")
    for line in report(real, foundry, options.folds, options.orders):
        print(line, flush=True)
        lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
