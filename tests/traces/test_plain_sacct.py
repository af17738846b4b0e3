"""Slurm's accounting is read as by reading record after record, on random records."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.model.table import TableEnding
from perdure.traces.read import read

BEGAN_S = 1_767_225_600
WAITS_OR_RUNS = ("PENDING", "REQUEUE_HOLD", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING")
WORDS = {
    "COMPLETED": TableEnding.PASSED, "CANCELLED by 7": TableEnding.KILLED, "TIMEOUT": TableEnding.KILLED,
    "PREEMPTED": TableEnding.KILLED, "FAILED": TableEnding.FAILED, "NODE_FAIL": TableEnding.FAILED,
    "OUT_OF_MEMORY": TableEnding.FAILED,
}  # fmt: skip
KINDS = ("a100", "h100")
Row = dict[str, Any]


def drawn(rng: random.Random) -> list[Row]:
    """Records of some jobs in any order; a job's are seconds apart, and what it asks for changes between them."""
    rows: list[Row] = []
    for number in range(rng.randrange(3, 9)):
        came_s = at_s = BEGAN_S + rng.randrange(500)
        is_kept = rng.random() < 0.3  # whether its records all have the first submit
        for turn in range(rng.choice((1, 1, 2, 3, 4))):
            start_s = at_s + rng.randrange(50)
            elapsed_s = rng.choice((0, rng.randrange(1, 400)))
            state = rng.choice((*WORDS, *("PREEMPTED", "NODE_FAIL", "COMPLETED") * 2))
            if rng.random() < 0.06 and turn:
                state = rng.choice(WAITS_OR_RUNS)
            rows.append({
                "id": str(number), "user": rng.choice(("ann", "bob")), "account": rng.choice(("lab", "far")),
                "partition": rng.choice(("main", "gpu")), "qos": rng.choice(("high", "low")),
                "submit_s": came_s if is_kept else at_s, "start_s": start_s, "elapsed_s": elapsed_s,
                "limit": rng.choice((5, 60, 90)), "state": state,
                "nodes": rng.choice((1, 2)), "gpus": rng.choice((2, 4, 8)), "kind": rng.choice(KINDS),
                "asked_gpus": 16, "cpus": rng.choice((3, 6)), "asked_cpus": rng.choice((7, 9)),
                "eligible_s": at_s + 3, "is_given": rng.random() < 0.8,
            })  # fmt: skip
            at_s = start_s + elapsed_s + 1 + rng.randrange(50)
    rng.shuffle(rows)
    return rows


def when(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def written(rows: list[Row], columns: tuple[str, ...]) -> str:
    def cells(row: Row) -> dict[str, str]:
        given = f"cpu={row['cpus']},gres/gpu:{row['kind']}={row['gpus']},gres/gpu={row['gpus']},node=1"
        hours, rest = divmod(row["limit"], 60)
        return {
            "JobID": row["id"], "User": row["user"], "Account": row["account"], "Partition": row["partition"],
            "QOS": row["qos"], "Submit": when(row["submit_s"]), "Start": when(row["start_s"]),
            "ElapsedRaw": str(row["elapsed_s"]), "TimelimitRaw": str(row["limit"]),
            "Timelimit": f"{hours:02}:{rest:02}:00", "State": row["state"], "NNodes": str(row["nodes"]),
            "AllocTRES": given if row["is_given"] else "",
            "ReqTRES": f"cpu={row['asked_cpus']},gres/gpu={row['asked_gpus']}", "ReqCPUS": str(row["asked_cpus"]),
            "Eligible": when(row["eligible_s"]),
        }  # fmt: skip

    lines = ["|".join(columns), *("|".join(cells(row)[name] for name in columns) for row in rows)]
    return "\n".join(lines) + "\n"


ALL = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Start", "ElapsedRaw", "TimelimitRaw", "State", "NNodes",
    "AllocTRES", "ReqTRES", "ReqCPUS", "Eligible",
)  # fmt: skip
IN_WORDS = tuple("Timelimit" if name == "TimelimitRaw" else name for name in ALL if name not in ("ReqCPUS", "Account"))


def expected(rows: list[Row], columns: tuple[str, ...]) -> list[Row]:
    """One row for each job that is over, in the order of submits and of first records."""
    open_again = {row["id"] for row in rows if row["state"] in WAITS_OR_RUNS}
    found = []
    for name in dict.fromkeys(row["id"] for row in rows):
        mine = [row for row in rows if row["id"] == name and name not in open_again]
        ran = [row for row in mine if (row["state"], row["elapsed_s"]) != ("NODE_FAIL", 0)]
        ran.sort(key=lambda row: row["start_s"])
        if not ran:
            continue
        first, last = ran[0], ran[-1]
        tries, carried = list[tuple[float, bool]](), 0.0
        for row in ran:
            carried += row["elapsed_s"]
            if row["state"] != "PREEMPTED" or row is last:
                tries.append((carried, row["state"] == "COMPLETED"))
                carried = 0.0
        cpus = last["cpus"] if last["is_given"] else last["asked_cpus"]
        found.append({
            "job_id": name, "submit_s": first["submit_s"], "start_s": first["start_s"],
            "end_s": last["start_s"] + last["elapsed_s"], "duration_s": sum(row["elapsed_s"] for row in ran),
            "gpus": last["gpus"] if last["is_given"] else last["asked_gpus"],
            "gpu_type": last["kind"] if last["is_given"] else "", "nodes": last["nodes"], "user": last["user"],
            "vc": last["account"] if "Account" in columns else last["partition"], "partition": last["partition"],
            "qos": last["qos"], "cpus": last["asked_cpus"] if "ReqCPUS" in columns else cpus,
            "walltime_s": 60 * last["limit"], "eligible_s": first["eligible_s"], "ending": WORDS[last["state"]],
            "preempted": sum(row["state"] == "PREEMPTED" for row in ran[:-1]), "tries": tries,
        })  # fmt: skip
    return found


@pytest.mark.parametrize("columns", [ALL, IN_WORDS])
def test_records_are_read_as_by_reading_them_one_by_one(file: Callable[..., Path], columns: tuple[str, ...]) -> None:
    for seed in range(40):
        rows = drawn(random.Random(seed))
        wanted = expected(rows, columns)
        if not wanted:
            continue
        jobs = read(file(f"{seed}.txt", written(rows, columns))).table
        assert jobs.began_s == min(each["submit_s"] for each in wanted)
        by_id = {each["job_id"]: each for each in wanted}
        assert sorted(jobs.job_id.tolist()) == sorted(by_id)
        assert (np.diff(jobs.submit_s) >= 0).all()
        assert jobs.attempts is not None
        for at, name in enumerate(jobs.job_id.tolist()):
            one = by_id[name]
            for column in ("submit_s", "start_s", "end_s", "eligible_s"):
                if column != "eligible_s" or "Eligible" in columns:
                    assert getattr(jobs, column)[at] + jobs.began_s == one[column], (seed, name, column)
            for column in ("duration_s", "gpus", "gpu_type", "nodes", "user", "vc", "partition", "qos", "cpus",
                           "walltime_s", "ending"):  # fmt: skip
                assert getattr(jobs, column)[at] == one[column], (seed, name, column)
            preempted = jobs.preempted[at] if len(jobs.preempted) else 0
            assert preempted == one["preempted"]
            span = slice(jobs.attempts.first[at], jobs.attempts.first[at + 1])
            told = zip(jobs.attempts.duration_s[span].tolist(), jobs.attempts.passed[span].tolist(), strict=True)
            assert list(told) == one["tries"], (seed, name)
