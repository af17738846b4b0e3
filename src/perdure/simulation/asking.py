"""The columns of a table that say what jobs asked for besides GPUs and a time limit, made ready for replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.scheduling.asks import After, Asks, Needs, Texts

_KINDS = {"afterany": After.ANY, "afterok": After.OK, "afternotok": After.NOTOK, "after": After.START}
_SINGLETON = "singleton"
_FIX = "Write it like afterok:ID:ID,singleton"


def asks_of(table: JobTable, origin_s: float, ticks_per_s: int) -> Asks:
    """What a table tells; a column that is blank for all jobs is None. Raises `InputError`, naming the job."""
    partition, account, qos, array = (_texts(table, name) for name in ("partition", "account", "qos", "array"))
    nice, nodes, cpus = (_counts(table, name) for name in ("nice", "nodes", "cpus"))
    eligible = _eligible(table, origin_s, ticks_per_s)
    return Asks(partition, account, qos, nice, nodes, cpus, eligible, _needs(table), array)


def _texts(table: JobTable, name: str) -> Texts | None:
    column = getattr(table, name)
    if not table.tells(name) or not (column != "").any():
        return None
    words, of = np.unique(column, return_inverse=True)
    return Texts(of.astype(np.int32), tuple(words.tolist()))


def _counts(table: JobTable, name: str) -> NDArray[np.int64] | None:
    column = getattr(table, name)
    return column.astype(np.int64) if table.tells(name) and column.any() else None


def _eligible(table: JobTable, origin_s: float, ticks_per_s: int) -> NDArray[np.int64] | None:
    """Ticks; what is not known, or lies before the submit, is the submit."""
    if not table.tells("eligible_s") or np.isnan(table.eligible_s).all():
        return None
    since_s = np.fmax(table.eligible_s, table.submit_s) - origin_s
    return np.rint(since_s * ticks_per_s).astype(np.int64)


def _needs(table: JobTable) -> Needs | None:
    """A job that the table does not hold is long over: nobody waits for it."""
    if not table.tells("dependency"):
        return None
    rows = np.flatnonzero(table.dependency != "").tolist()
    if not rows:
        return None
    ids: list[str] = table.job_id.tolist()
    row_of = {
        job: row for row, job in zip(range(len(ids) - 1, -1, -1), reversed(ids), strict=True)
    }  # the first of a name
    found: list[tuple[int, int, int]] = []
    last: dict[str, int] = {}  # of each user the last singleton
    for row in rows:
        for word in str(table.dependency[row]).split(","):
            kind, *others = word.strip().split(":")
            if kind == _SINGLETON and not others:
                user = str(table.user[row])
                if user in last:
                    found.append((row, last[user], After.SINGLETON))
                last[user] = row
            elif kind in _KINDS and others:
                found += [(row, row_of[other], _KINDS[kind]) for other in others if row_of.get(other, row) != row]
            else:
                raise InputError(f"job {table.job_id[row]}", f"{word!r} is not a dependency", _FIX)
    of, on, kinds = np.array(found, np.int64).reshape(-1, 3).T
    return Needs(of, on, kinds.astype(np.int8))
