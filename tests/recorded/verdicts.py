"""What is said of logs that stand in the project, and of public ones.

A line is one log: the verdict, and a hash of all that `perdure why` prints of it, as text and as JSON. Every third is
judged with an attempt and surroundings that are drawn, as the service would know them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from perdure.cli.card import card
from perdure.cli.diagnosis import diagnosis_of, record
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.rules import RetryRules
from perdure.triage.evidence.context import Context
from perdure.triage.judge import judge
from perdure.triage.verdict import Verdict
from tests.copying import replace
from tests.recorded.answers import FITTING
from tests.recorded.drawn import Drawn, in_words
from tests.recorded.line import Line, hash_of
from tests.triage.recorded import RECORDED

ROOT = Path(__file__).resolve().parents[2]
OWN = {
    **{path.parent.name: path for path in sorted((ROOT / "benchmarks").glob("*_failures/logs.jsonl.gz"))},
    "foundry": RECORDED,
}
SHARED = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data")) / "failure-logs"
PUBLIC = ("train", "train2", "ambiguous", "ambiguous2")
LONGEST = 6_000  # characters of a log
MANY = 300  # logs, of which every second one is judged
EXIT_CODES = (1, 1, 1, 2, 134, 137, 139)


def names() -> Iterator[str]:
    yield from OWN
    if SHARED.exists():
        yield from PUBLIC


def lines_of(name: str) -> Iterator[Line]:
    """A line for each log of a file."""
    lines = _unpacked(OWN.get(name) or SHARED / f"{name}.jsonl").splitlines()
    for number, line in enumerate(lines[:: 2 if len(lines) > MANY else 1]):
        text = json.loads(line)["text"][-LONGEST:].encode("utf-8", "replace")
        found = judge(text, *(() if number % 3 else _known(number)))
        printed = _printed(found)
        head = f"{number} {found.label} {found.category} {found.p_transient:.2f}"
        yield Line(f"{head} {hash_of(printed)}", f"{head}\n{printed}")


def _known(number: int) -> tuple[Attempt, Context]:
    """What the service may know of a failure besides its log."""
    drawn = Drawn(str(number), FITTING)
    attempt = replace(drawn(Attempt, "attempt"), state=AttemptState.FAILED, exit_code=EXIT_CODES[number % 7])
    return attempt, drawn(Context, "context")


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _printed(verdict: Verdict) -> str:
    found = diagnosis_of("log", verdict, RetryRules())
    return "\n".join([*card(found, 100), json.dumps(_rounded(record(found)), sort_keys=True, default=in_words)])


def _rounded(said: Mapping[str, object]) -> dict[str, object]:
    """Without the last digits of numbers, which differ from machine to machine."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in said.items()}
