"""What is said of logs that stand in the project, and of public ones: ``python -m tests.recorded.verdicts``.

A line is one log: the verdict, and a hash of all that `perdure why` prints of it, as text and as JSON. Every third is
judged with an attempt and surroundings that are drawn, as the service would know them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
import time
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
from tests.triage.recorded import RECORDED

PLACE = Path(__file__).parent / "answers" / "verdicts"
ROOT = Path(__file__).resolve().parents[2]
OWN = {
    **{path.parent.name: path for path in sorted((ROOT / "benchmarks").glob("*_failures/logs.jsonl.gz"))},
    "foundry": RECORDED,
}
PUBLIC = ("train", "train2", "ambiguous", "ambiguous2")  # under failure-logs in the shared data
LONGEST = 6_000  # characters of a log
MANY = 300  # logs, of which every second one is judged
EXIT_CODES = (1, 1, 1, 2, 134, 137, 139)


def path_of(name: str) -> Path:
    return PLACE / f"{name}.txt"


def public(data: Path, name: str) -> Path:
    return data / "failure-logs" / f"{name}.jsonl"


def verdicts(path: Path) -> Iterator[str]:
    """A line for each log of a file."""
    lines = _unpacked(path).splitlines()
    for number, line in enumerate(lines[:: 2 if len(lines) > MANY else 1]):
        text = json.loads(line)["text"][-LONGEST:].encode("utf-8", "replace")
        yield f"{number} {_said(judge(text, *(() if number % 3 else _known(number))))}\n"


def _known(number: int) -> tuple[Attempt, Context]:
    """What the service may know of a failure besides its log."""
    drawn = Drawn(str(number), FITTING)
    attempt = replace(drawn(Attempt, "attempt"), state=AttemptState.FAILED, exit_code=EXIT_CODES[number % 7])
    return attempt, drawn(Context, "context")


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _said(verdict: Verdict) -> str:
    found = diagnosis_of("log", verdict, RetryRules())
    printed = "\n".join([*card(found, 100), json.dumps(_rounded(record(found)), sort_keys=True, default=in_words)])
    hashed = hashlib.sha256(printed.encode()).hexdigest()[:8]
    return f"{verdict.label} {verdict.category} {verdict.p_transient:.2f} {hashed}"


def _rounded(said: Mapping[str, object]) -> dict[str, object]:
    """Without the last digits of numbers, which differ from machine to machine."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in said.items()}


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # commands to paste are short then
    PLACE.mkdir(parents=True, exist_ok=True)
    shared = ROOT.parent / "shared" / "data"
    for name, path in {**OWN, **{name: public(shared, name) for name in PUBLIC}}.items():
        path_of(name).write_text("".join(verdicts(path)))
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
