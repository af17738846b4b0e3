"""How long a listing of exceptions takes with very many in the journal, whatever is looked for.

    python benchmarks/exceptions_listing.py [--records 200000]

Made-up records straight in the journal's table: seven types are common, forty are one in 80,000 each, and one record in
2,000 has expired. Prints the median of nine times that each listing takes, in milliseconds of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert

from perdure.coordination.record import (
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Origin,
    Scope,
    Subject,
)
from perdure.service.store import codec
from perdure.service.store.journal import Journal
from perdure.service.store.queries.exceptions import find_exceptions
from perdure.service.store.queries.reader import Reader
from perdure.service.store.schema import exceptions

CLUSTER, START_S, CHUNK, RARE = "bench", 1_790_000_000.0, 10_000, 5e-4
COMMON = ("gpu.xid79", "gpu.ecc", "process.exit", "app.nan", "app.oom", "storage.slow", "net.link")
SELDOM = tuple(f"site.k{i}" for i in range(40))
OUTCOMES = (ExceptionOutcome.OPEN, ExceptionOutcome.RECOVERED, ExceptionOutcome.STOPPED)
ENDED = ("handled", "escalated", "expired", "recovered", "stopped", "withdrawn")
LISTINGS: Mapping[str, Mapping[str, Any]] = {
    "all that ended": {"states": ENDED},
    "all that ended, from the middle": {"states": ENDED, "cursor": "100000"},
    "a common state": {"states": ["recovered"]},
    "a rare state": {"states": ["expired"]},
    "a state of none": {"states": ["escalated"]},
    "a common type and below": {"types": ["gpu"]},
    "a rare type": {"types": ["site.k7"]},
    "a type of none": {"types": ["nope"]},
    "a common type in a rare state": {"types": ["gpu"], "states": ["expired"]},
    "one job's": {"job_id": "77"},
}


def record(i: int, rng: np.random.Generator) -> ExceptionRecord:
    """The `i`-th of the records, all of which have ended."""
    of_all = SELDOM if rng.random() < RARE else COMMON
    expired = rng.random() < RARE
    at_s = START_S + i
    return ExceptionRecord(
        id=f"e{i}",
        type=of_all[int(rng.integers(len(of_all)))],
        severity=1,
        scope=Scope.LOCAL,
        origin=Origin("job"),
        subject=Subject(CLUSTER, job_id=str(i % 5000), nodes=(f"n{i % 500}",)),
        time_s=at_s,
        incarnation=1,
        state=ExceptionState.EXPIRED if expired else ExceptionState.HANDLED,
        outcome=ExceptionOutcome.OPEN if expired else OUTCOMES[int(rng.integers(len(OUTCOMES)))],
        note="x" * 80,
        verdicts=(Answer(Component.SCHEDULER, AnswerKind.HANDLED, at_s + 1, "why it was done so" * 5),),
    )


def row(made: ExceptionRecord) -> dict[str, Any]:
    """A record as it stands in the table."""
    return {
        "id": made.id,
        "cluster": CLUSTER,
        "job_id": made.subject.job_id,
        "incarnation": made.incarnation,
        "time_s": made.time_s,
        "type": made.type,
        "state": made.standing,
        "payload": codec.EXCEPTION.encode(made),
        "of_attempt": False,
        "said": 1,
    }


def fill(journal: Journal, records: int) -> None:
    rng = np.random.default_rng(1)
    with journal.store.writing() as db:
        for begin in range(0, records, CHUNK):
            db.execute(insert(exceptions), [row(record(i, rng)) for i in range(begin, min(begin + CHUNK, records))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as name, closing(Journal.open(Path(name), CLUSTER)) as journal:
        fill(journal, records)
        reader = Reader(journal.engine, CLUSTER)
        for words, given in LISTINGS.items():
            took = []
            for _ in range(9):
                began = time.process_time()
                found = find_exceptions(reader, **given)
                took.append(1e3 * (time.process_time() - began))
            print(f"{statistics.median(took):8.1f} ms  {words} ({len(found.items)} shown)", flush=True)


if __name__ == "__main__":
    main()
