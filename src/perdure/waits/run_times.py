"""How long jobs run, learnt from those that have ended: as a share of their limit, by who submitted them and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

ENOUGH = 10  # jobs alike that predict the next one
LATEST = 500  # of jobs alike; what is older counts no more
LEAST_LEFT_S = 60.0  # a job that has outrun all that were like it goes on for at least this long

Key = tuple[str, str]
Names = tuple[NDArray[np.str_], NDArray[np.intp]]  # the names there are, and which of them each job has


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Shares of limits, and seconds, of past jobs, by (user, partition); "" stands for any."""

    shares: Mapping[Key, NDArray[np.float64]] = field(default_factory=dict)
    seconds: Mapping[Key, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        user: NDArray[np.str_],
        partition: NDArray[np.str_],
        duration_s: NDArray[np.float64],
        walltime_s: NDArray[np.float64],
    ) -> RunTimes:
        """Learn from jobs as columns of one length, the latest last; `walltime_s` is NaN where there was none."""
        limited = np.isfinite(walltime_s) & (walltime_s > 0)
        share = np.minimum(1.0, duration_s / np.where(limited, walltime_s, 1.0))
        users, partitions = (np.unique(names, return_inverse=True) for names in (user, partition))
        return cls(_by_key(users, partitions, share, limited), _by_key(users, partitions, duration_s))

    def draw(
        self, user: str, partition: str, walltime_s: float | None, elapsed_s: float, rng: Generator, size: int
    ) -> NDArray[np.float64]:
        """Whole run times, shape (size,), of a job that has run for `elapsed_s` and goes on.

        Those of past jobs alike that ran longer than that; without any, all values up to the limit are equally likely.
        """
        found = self._alike(self.seconds if walltime_s is None else self.shares, user, partition)
        longer = found * (walltime_s or 1.0)
        longer = longer[longer > elapsed_s]
        if len(longer):
            return rng.choice(longer, size)
        most = max(walltime_s or 2 * elapsed_s, elapsed_s + LEAST_LEFT_S)
        return rng.uniform(elapsed_s, most, size)

    def draw_fresh(
        self, user: str, partition: str, walltime_s: NDArray[np.float64], rng: Generator, size: int
    ) -> NDArray[np.float64]:
        """The same, shape (n, size), for jobs that have not begun, with limits of shape (n,)."""
        found = self._alike(self.shares, user, partition)
        found = found[found > 0]
        limits_s = walltime_s[:, None]
        if len(found):
            return np.asarray(rng.choice(found, (len(walltime_s), size)) * limits_s)
        return rng.uniform(0.0, np.maximum(limits_s, LEAST_LEFT_S), (len(walltime_s), size))

    def _alike(self, known: Mapping[Key, NDArray[np.float64]], user: str, partition: str) -> NDArray[np.float64]:
        for key in ((user, partition), (user, ""), ("", partition), ("", "")):
            if len(found := known.get(key, np.empty(0))) >= ENOUGH:
                return found
        return np.empty(0)


def _by_key(
    user: Names, partition: Names, value: NDArray[np.float64], which: NDArray[np.bool_] | slice = slice(None)
) -> dict[Key, NDArray[np.float64]]:
    (users, of_user), (partitions, of_partition) = user, partition
    of_user, of_partition, value = of_user[which], of_partition[which], value[which]
    found: dict[Key, NDArray[np.float64]] = {("", ""): value[-LATEST:]}
    for by_user, by_partition in ((1, 1), (1, 0), (0, 1)):
        code = of_user * len(partitions) * by_user + of_partition * by_partition
        order = np.argsort(code, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else ():
            row = rows[-1]
            key = (
                str(users[of_user[row]]) if by_user else "",
                str(partitions[of_partition[row]]) if by_partition else "",
            )
            found.setdefault(key, value[rows[-LATEST:]])
    return found
