"""How right verdicts and their categories are on real logs, by halves of their repositories:

    python -m benchmarks.triage_real_logs [--out TABLE.md]

No network is trained and no fold is fitted: what is judged is Perdure as it is installed, in a few minutes.
DIR/failure-logs (default of DIR: PERDURE_DATA, or ../shared/data) holds three files. ``train.jsonl`` is what rules
were written from. ``train2.jsonl`` is split by repository. The developers of rules read half 0 first, and half 1 on 26
November 2026; the last figures of half 1 before that are kept in `UNREAD`. What to expect elsewhere, they say, and the
rows "left out", of logs judged without the wordings that their repository alone shows (`foundry.left_out`).
``noise.jsonl`` holds alarming lines of runs that ended well, each judged as the last words of a run that else is
healthy: whoever dies just then without a word of its own must not be told that such a line is the cause.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.triage_quality import HEAD, Outcome, interval, row
from foundry.left_out import judged_left_out
from perdure.triage.evidence.rule import Force
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import CauseRole, Label, Verdict

ROOT = Path(__file__).resolve().parents[1]
HEALTHY = "".join(f"2025-01-01 00:00:01 INFO train: step {i} loss {3 / (i + 1):.4f} lr 1e-4\n" for i in range(60))
WIDER = {
    "import": "config", "version": "config", "auth": "config", "env": "config", "quota": "config", "dtype": "shape",
    "device": "shape", "autograd": "api", "assertion": "api", "tracker": "net",
}  # fmt: skip
"""What the labels of the first file call the categories that only the second one knows."""

OWN_WORDS = {"mpi_config": "dist_config"}
"""What Perdure calls a category that the labels call otherwise."""


UNREAD = (
    "| train2, half 1, before it was read (187, 15 transient) | 0.979 (0.95-0.99) | 0.928 | 0.99 / 0.99 | 0.87 / 0.87 |"
    " 0.993 | 0.067 | 0.000 | 0.107 | 0.727 (0.66-0.79) | 0.775 | 0.021 |"
)
"""How half 1 was judged while nobody had read it, for the second and last time, by the commit 4e8e3acf."""

OVERLAP = frozenset({"api", "config", "data"})
"""Categories of which those who labelled the logs say themselves that they overlap."""


def half(source: str) -> int:
    """0 or 1, the same for all logs of one repository."""
    return int(hashlib.sha256(source.split("@")[0].encode()).hexdigest(), 16) % 2


def judged(records: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    return [judge(record["text"].encode("utf-8", "replace")) for record in records]


def names_category(record: Mapping[str, Any], verdict: Verdict, narrow: bool) -> bool:
    """Whether the category is the label's; if not `narrow`, one that only the second file knows counts as its wider."""
    said = verdict.category if narrow else WIDER.get(verdict.category, verdict.category)
    return bool(said == OWN_WORDS.get(record["category"], record["category"]))


def is_near(record: Mapping[str, Any], verdict: Verdict) -> bool:
    """Whether label and verdict are two categories that overlap."""
    return {record["category"], verdict.category} <= OVERLAP


def table(sets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """One row a set; of read sets another of their logs as if nobody had read them."""
    head, rule = HEAD.split("\n")
    yield f"{head} category right (95 %) | or one that overlaps | named unknown |\n{rule}---|---|---|"
    for name, records in sets.items():
        if not records:
            continue
        yield _row_of(name, records, judged(records))
        if name != "train2":
            yield _row_of(f"{name}, left out", records, judged_left_out(records))
        if name == "train2, half 1, read later":
            yield UNREAD
    yield ""


def _row_of(name: str, records: Sequence[Mapping[str, Any]], found: Sequence[Verdict]) -> str:
    truth = np.array([record["label"] == Label.TRANSIENT for record in records])
    outcome = Outcome(np.array([v.p_transient for v in found]), [v.label for v in found])
    narrow = name.startswith("train2")
    right = np.array([names_category(r, v, narrow) for r, v in zip(records, found, strict=True)])
    near = np.array([ok or is_near(r, v) for ok, r, v in zip(right, records, found, strict=True)])
    unknown = np.mean([v.category == "unknown" for v in found])
    title = f"{name} ({len(truth)}, {truth.sum()} transient)"
    return f"{row(title, truth, outcome)} {right.mean():.3f} ({interval(right)}) | {near.mean():.3f} | {unknown:.3f} |"


def as_last_words(record: Mapping[str, Any]) -> bytes:
    """A healthy log that ends with the line and what stood around it."""
    around = record["context"]
    lines = [*around["before"], record["line"], *around["after"]]
    return (HEALTHY + "\n".join(lines) + "\n").encode("utf-8", "replace")


def is_believed(log: bytes) -> bool:
    """Whether a verdict is made of it that is not unsure."""
    return judge(log).label is not Label.UNSURE


def holds_root(log: bytes) -> bool:
    """Whether a rule takes a line of it for the cause, and is not faint."""
    hits = own_rules().hits(LogText.of(log))
    return any(hit.cause.role is CauseRole.ROOT and hit.cause.force is not Force.FAINT for hit in hits)


def of_noise(sets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """What is made of alarming lines of runs that ended well."""
    yield "| lines | a rule takes one for the cause | the verdict is not unsure |\n|---|---|---|"
    for name, records in sets.items():
        logs = [as_last_words(record) for record in records]
        if logs:
            yield f"| {name} ({len(logs)}) | {_share(logs, holds_root)} | {_share(logs, is_believed)} |"
    yield ""


def _share(logs: Sequence[bytes], holds: Callable[[bytes], bool]) -> str:
    found = np.array([holds(log) for log in logs])
    return f"{found.mean():.3f} ({interval(found)})"


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _halves(
    name: str, records: Sequence[Mapping[str, Any]], said: tuple[str, str] = ("read", "read later")
) -> dict[str, list[Mapping[str, Any]]]:
    return {f"{name}, half {part}, {said[part]}": [r for r in records if half(r["source"]) == part] for part in (0, 1)}


def report(data: Path) -> Iterator[str]:
    """The lines of both tables."""
    first, second, noise = (_read(data / f"{name}.jsonl") for name in ("train", "train2", "noise"))
    yield from table({"train": first, "train2": second, **_halves("train2", second)})
    yield from of_noise(_halves("noise", noise, ("read", "unread")))


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = ["Made by `python -m benchmarks.triage_real_logs`.\n"]
    for line in report(options.data / "failure-logs"):
        print(line, flush=True)
        lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
