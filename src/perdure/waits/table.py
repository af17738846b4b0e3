"""Looks at waiting jobs as columns: what was seen of each, and up to when it is known to have waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WaitTable:
    """Looks at waiting jobs, row i of every column is one look, shape (n,); a job that waits for long has several.

    What is to be predicted is the rest of the wait, ``start_s - poll_s``. A job that has not started is kept, as a
    censored observation: it is known to have waited until `seen_until_s`.
    """

    job: NDArray[Any]  # ids or codes
    poll_s: NDArray[np.float64]  # when it was looked at
    submit_s: NDArray[np.float64]
    start_s: NDArray[np.float64]  # NaN while it is not known to have started
    seen_until_s: NDArray[np.float64]  # until then it is known to have waited
    partition: NDArray[np.int64]  # codes; -1 where it is not known
    account: NDArray[np.int64]
    features: NDArray[np.float32]  # (n, n_features), each known at `poll_s`; NaN where it is not known
    names: tuple[str, ...]  # of the features, as in `perdure.waits.features`

    def __post_init__(self) -> None:
        rows = {each.name: len(getattr(self, each.name)) for each in fields(self) if each.name != "names"}
        if len(set(rows.values())) > 1:
            raise ValueError(f"WaitTable columns differ in length: {rows}")
        if self.features.ndim != 2 or self.features.shape[1] != len(self.names):
            raise ValueError(f"WaitTable has features of shape {self.features.shape} and {len(self.names)} names")

    def __len__(self) -> int:
        return len(self.poll_s)

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """(n,) what was left of the wait at the look; NaN where the job is not known to have started."""
        return self.start_s - self.poll_s

    @property
    def started(self) -> NDArray[np.bool_]:
        """(n,) whether the start is known."""
        return np.isfinite(self.start_s)

    @property
    def waited_s(self) -> NDArray[np.float64]:
        """(n,) how long after the look the job is known to have waited: all of the wait, or a lower bound of it."""
        return np.where(self.started, self.start_s, self.seen_until_s) - self.poll_s

    def feature(self, name: str) -> NDArray[np.float32]:
        """(n,) one feature; NaN throughout where the table lacks it."""
        if name not in self.names:
            return np.full(len(self), np.nan, np.float32)
        return self.features[:, self.names.index(name)]

    def columns(self, names: Sequence[str]) -> NDArray[np.float32]:
        """(n, len(names)) features by name; NaN where the table lacks one."""
        if tuple(names) == self.names:
            return self.features
        return np.column_stack([self.feature(name) for name in names]) if names else self.features[:, :0]

    def take(self, rows: NDArray[Any]) -> WaitTable:
        """Some rows, by a mask or by their numbers."""
        kept = {each.name: getattr(self, each.name)[rows] for each in fields(self) if each.name != "names"}
        return WaitTable(names=self.names, **kept)

    def known_at(self, now: float) -> WaitTable:
        """The looks up to `now`, each with what was known then: a job that started later still waits."""
        past = self.take(self.poll_s <= now)
        with np.errstate(invalid="ignore"):
            later = past.start_s > now
        return replace(
            past,
            start_s=np.where(later, np.nan, past.start_s),
            seen_until_s=np.minimum(np.where(later, now, past.seen_until_s), now),
        )

    def evidence_at(self, now: float) -> WaitTable:
        """What was known at `now`, without jobs first looked at right then: nothing is known of their waits."""
        known = self.known_at(now)
        return known.take(known.started | (known.waited_s > 0))
