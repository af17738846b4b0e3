"""How right verdicts are on logs of programs that really failed on a GPU, by whether their family was read:

    python -m benchmarks.triage_gpu [--wrong] [--out TABLE.md]

`gpu_failures/logs.jsonl.gz` holds 133 logs with their truths, written before the programs ran; see its README.md.
The developers of rules read the logs of the families in `READ`. Of the other families they knew the list of what the
first measurement got wrong, some programs and the head of one log: these rows are more hopeful than logs that nobody
has seen.
A program that ended well is counted by itself: its log alone should show no failure.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.triage_quality import HEAD, Outcome, interval, row
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict

LOGS = Path(__file__).with_name("gpu_failures") / "logs.jsonl.gz"
READ = frozenset({"pytorch", "transformers", "lightning", "sqlite", "triton"})
OWN_WORDS = {"mpi_config": "dist_config"}
"""What Perdure calls a category that the truths call otherwise."""


def read_records() -> list[dict[str, Any]]:
    """All logs with their truths: `retry_helps` is None for a program that ended well."""
    return [json.loads(line) for line in gzip.decompress(LOGS.read_bytes()).decode().splitlines()]


def judged(records: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The verdict on each log alone, without an exit code."""
    return [judge(record["text"].encode("utf-8", "replace")) for record in records]


def right_categories(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The category of the truth, then those that are as right."""
    return tuple(OWN_WORDS.get(each, each) for each in (record["category"], *record.get("also_right", ())))


def table(sets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """One row a set of failures."""
    head, rule = HEAD.split("\n")
    yield f"{head} category right (95 %) | or one as right |\n{rule}---|---|"
    for name, records in sets.items():
        failed = [record for record in records if record["retry_helps"] is not None]
        yield _row_of(name, failed, judged(failed))
    yield ""


def _row_of(name: str, records: Sequence[Mapping[str, Any]], found: Sequence[Verdict]) -> str:
    truth = np.array([record["retry_helps"] for record in records])
    outcome = Outcome(np.array([v.p_transient for v in found]), [v.label for v in found])
    pairs = list(zip(records, found, strict=True))
    exact = np.array([v.category == right_categories(r)[0] for r, v in pairs])
    near = np.array([v.category in right_categories(r) for r, v in pairs])
    title = f"{name} ({len(truth)}, {truth.sum()} transient)"
    return f"{row(title, truth, outcome)} {exact.mean():.3f} ({interval(exact)}) | {near.mean():.3f} |"


def of_successes(sets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """What is made of programs that ended well."""
    yield "| programs that ended well | stopped | retried |\n|---|---|---|"
    for name, records in sets.items():
        labels = [v.label for v in judged([record for record in records if record["retry_helps"] is None])]
        stopped, retried = (labels.count(label) for label in (Label.DETERMINISTIC, Label.TRANSIENT))
        yield f"| {name} ({len(labels)}) | {stopped} | {retried} |"
    yield ""


def wrong(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The logs of which something is wrong or unsure, beside their truths."""
    for record, verdict in zip(records, judged(records), strict=True):
        label = {True: Label.TRANSIENT, False: Label.DETERMINISTIC, None: Label.UNSURE}[record["retry_helps"]]
        if verdict.label is not label or (
            label is not Label.UNSURE and verdict.category not in right_categories(record)
        ):
            yield (
                f"{record['id']}: {label}, {'/'.join(right_categories(record))}; said {verdict.label} "
                f"({verdict.p_transient:.2f}), {verdict.category}: {verdict.summary}"
            )


def sets_of(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The logs of read families, and of the others."""
    read = [record for record in records if record["family"] in READ]
    return {"families read": read, "families not read": [record for record in records if record not in read]}


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--wrong", action="store_true", help="list what is wrong of the families that were read")
    options = parser.parse_args()
    records = read_records()
    sets = sets_of(records)
    if options.wrong:
        print("\n".join(wrong(sets["families read"])))
        return
    lines = [
        "Made by `python -m benchmarks.triage_gpu --out benchmarks/triage_gpu.md`: see `gpu_failures/README.md`.\n",
        *table({**sets, "all": records}),
        *of_successes(sets),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
