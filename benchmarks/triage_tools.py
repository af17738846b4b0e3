"""How right verdicts are on logs of ordinary tools that really failed, and on written ones of large systems:

    python -m benchmarks.triage_tools [--wrong] [--out TABLE.md]

`tool_failures/logs.jsonl.gz` holds logs with their truths, which were sealed before any verdict was seen, in two parts,
`system_failures/logs.jsonl.gz` a third, `training_failures/logs.jsonl.gz` a fourth, `operator_failures/logs.jsonl.gz` a
fifth and `site_failures/logs.jsonl.gz` a sixth, half of each by programs that ran; see their README.md. After the first
measurement of each part but the last what it got wrong was read: those figures are kept in their `first.md`, and later
ones are of logs that were fixed against.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.triage_gpu import right_categories
from benchmarks.triage_quality import HEAD, Outcome, interval, row
from perdure.triage.judge import judge
from perdure.triage.reading_order import in_order_of_reading
from perdure.triage.verdict import Label, Verdict

PREFIXES = {"b-": 2, "c-": 3, "d-": 4, "e-": 5, "f-": 6}
"""What the ids of the later parts begin with."""

PAIR = "-pair-"
"""What the ids hold of logs that end alike, and of which one is transient."""

FOLDERS = ("tool_failures", "system_failures", "training_failures", "operator_failures", "site_failures")
LOGS = tuple(Path(__file__).with_name(name) / "logs.jsonl.gz" for name in FOLDERS)


def read_records() -> list[dict[str, Any]]:
    """All logs with their truths."""
    return [
        json.loads(line) for path in LOGS for line in gzip.decompress(path.read_bytes()).decode().split("\n") if line
    ]


def judged(records: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The verdict on each log alone, without an exit code."""
    return [judge(record["text"].encode("utf-8", "replace")) for record in records]


def shows_root(record: Mapping[str, Any], verdict: Verdict) -> bool:
    """Whether the first line that a person reads is the truth's, or one that the truth calls as good."""
    shown = in_order_of_reading(verdict)
    return bool(shown) and any(words in shown[0].text for words in (record["root"], *record.get("also_root", ())))


def part_of(record: Mapping[str, Any]) -> int:
    """Which part a log is of."""
    return PREFIXES.get(record["id"][:2], 1)


def table(records: Sequence[Mapping[str, Any]], found: Sequence[Verdict]) -> Iterator[str]:
    """The head, and a row for each part and for the pairs in it."""
    head, rule = HEAD.split("\n")
    yield f"{head} category right (95 %) | or one as right | named unknown | root line first |\n{rule}---|---|---|---|"
    for part in (1, *PREFIXES.values()):
        own = [(r, v) for r, v in zip(records, found, strict=True) if part_of(r) == part]
        yield _row_of(f"part {part}", [r for r, _ in own], [v for _, v in own])
        if pairs := [(r, v) for r, v in own if PAIR in r["id"]]:
            yield _row_of("its pairs", [r for r, _ in pairs], [v for _, v in pairs])
    yield ""


def _row_of(name: str, records: Sequence[Mapping[str, Any]], found: Sequence[Verdict]) -> str:
    truth = np.array([record["retry"] for record in records])
    outcome = Outcome(np.array([v.p_transient for v in found]), [v.label for v in found])
    pairs = list(zip(records, found, strict=True))
    exact = np.array([v.category == right_categories(r)[0] for r, v in pairs])
    near = np.array([v.category in right_categories(r) for r, v in pairs])
    unknown, root = np.mean([v.category == "unknown" for v in found]), np.mean([shows_root(r, v) for r, v in pairs])
    title = f"{name} ({len(truth)}, {truth.sum()} transient)"
    cells = f"{exact.mean():.3f} ({interval(exact)}) | {near.mean():.3f} | {unknown:.3f} | {root:.3f}"
    return f"{row(title, truth, outcome)} {cells} |"


def wrong(records: Sequence[Mapping[str, Any]], found: Sequence[Verdict]) -> Iterator[str]:
    """The logs of which something is wrong or unsure, beside their truths."""
    for record, verdict in zip(records, found, strict=True):
        expected = Label.TRANSIENT if record["retry"] else Label.DETERMINISTIC
        right = verdict.category in right_categories(record)
        if verdict.label is not expected or not right or not shows_root(record, verdict):
            first = next(iter(in_order_of_reading(verdict)), None)
            said = f"{verdict.label} {verdict.p_transient:.2f} {verdict.category}{'' if right else ' (!)'}"
            by = f"{first.rule}: {first.text[:140]}" if first else "no line"
            yield f"{record['id']}: {expected} {record['category']}, said {said} by {by}"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="list what is wrong instead")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records = read_records()
    found = judged(records)
    lines = list(wrong(records, found) if options.wrong else table(records, found))
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(["Made by `python -m benchmarks.triage_tools`.\n", *lines]).rstrip() + "\n")


if __name__ == "__main__":
    main()
