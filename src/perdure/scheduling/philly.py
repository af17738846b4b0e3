"""Philly's scheduler: virtual clusters with quotas, which lend what they do not use.

Source: M. Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads", USENIX ATC
2019. The locality that it asks for, and relaxes, is the placement `ladder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from perdure.scheduling.protocol import Ranking
from perdure.scheduling.shares import limits, quotas, used
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Philly:
    """Jobs within their virtual cluster's quota come first, in the order of arrival; the others borrow what is left.

    Nobody is preempted until `crowded` (a share) of all GPUs are busy. Then who borrowed, the last to start first,
    makes room for jobs within quota. A job that does not fit is passed over. `gpus` names the quotas; see
    `shares.quotas` for the default.

    A quota is a right, not a limit: a job of four GPUs does not fit a quota of which three are left, and borrows all
    four. `most` caps that: nobody borrows beyond so many times its quota, or beyond its widest job; jobs that wait and
    are within quota count as if they ran.
    """

    gpus: Mapping[str, float] = field(default_factory=dict)
    crowded: float = 0.9
    most: float = inf
    blocks: bool = False
    preemptive: bool = True
    name: str = "philly"

    def ranking(self, view: View) -> Lending:
        quota = quotas(view, self.gpus, "policy philly")
        return Lending(view, quota, self.crowded, [] if self.most == inf else limits(view, quota, self.most))


@dataclass(slots=True)
class Lending(Ranking):
    """Philly's scheduler at work. It keeps no record: who is within quota follows from when jobs started.

    Of running jobs the earlier started use up a quota first, whoever was within it when it started; of waiting jobs the
    earlier arrived, from what those leave.
    """

    view: View
    quota: list[float]
    crowded: float
    limit: list[float] = field(default_factory=list)  # GPUs that each virtual cluster may hold; none: all

    def order(self) -> list[int]:
        """Running within quota, then lent out, entitled and borrowing; once crowded the entitled go before those lent
        out.
        """
        view = self.view
        waiting = list(view.waiting)
        if not view.resources and sum(view.gpus[row] for row in waiting) <= view.free_gpus:
            entitled, borrowing = self._split(waiting, self._left())
            return [*entitled, *self._allowed(entitled, borrowing)]  # nobody makes room: who runs need not be named
        left = self.quota.copy()
        kept, lent = self._split(self._by_start(view.running), left)
        entitled, borrowing = self._split(waiting, left)
        borrowing = self._allowed(entitled, borrowing)
        busy = view.total_gpus - view.free_gpus
        if busy < self.crowded * view.total_gpus:
            return [*kept, *lent, *entitled, *borrowing]
        return [*kept, *entitled, *lent, *borrowing]

    def _allowed(self, entitled: list[int], borrowing: list[int]) -> list[int]:
        """The waiting jobs that may borrow, once the entitled run."""
        if not self.limit:
            return borrowing
        view, allowed = self.view, []
        held = used(view, view.group, len(self.quota))
        for row in entitled:
            held[view.group[row]] += view.gpus[row]
        for row in borrowing:
            group, gpus = view.group[row], view.gpus[row]
            if held[group] + gpus <= self.limit[group]:
                held[group] += gpus
                allowed.append(row)
        return allowed

    def _left(self) -> list[float]:
        """What the running jobs leave of each quota; only where they exceed one it matters which came first."""
        view = self.view
        held = used(view, view.group, len(self.quota))
        exceeded = [gpus > quota for gpus, quota in zip(held, self.quota, strict=True)]
        left = [quota - gpus * (not over) for gpus, quota, over in zip(held, self.quota, exceeded, strict=True)]
        self._split(self._by_start(row for row in view.running if exceeded[view.group[row]]), left)
        return left

    def _by_start(self, rows: Iterable[int]) -> list[int]:
        """By the tick of the last start, then by row."""
        return sorted(rows, key=lambda row: (self.view.running[row], row))

    def _split(self, rows: list[int], left: list[float]) -> tuple[list[int], list[int]]:
        """Those within what is left of the quotas, which they use up, and the others."""
        within, beyond = [], []
        for row in rows:
            group, gpus = self.view.group[row], self.view.gpus[row]
            if gpus <= left[group]:
                left[group] -= gpus
                within.append(row)
            else:
                beyond.append(row)
        return within, beyond
