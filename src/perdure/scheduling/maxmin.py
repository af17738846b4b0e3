"""Max-min fairness by rounds: over time every job gets its max-min share of the GPUs, as whole gangs.

Source: the round mechanism follows D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep
learning workloads" (Gavel), OSDI 2020, for GPUs of one kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.scheduling.view import View

UNIT = 720_720  # of these a GPU has: shares are whole, so that equal jobs stay equal, and exact among up to 16 jobs


def maxmin_shares(asked: list[int], total: int) -> list[int]:
    """Shares of `total` GPUs that maximise the smallest, then the next smallest, none above what is asked.

    In 720,720ths of a GPU, rounded down. By water-filling in the order of what is asked: each takes an even part of
    what is left, or less if it asks less; from the first that asks for more than its part, all get that same part.

    >>> [share / UNIT for share in maxmin_shares([1, 4, 8], 8)]
    [1.0, 3.5, 3.5]
    """
    left = total * UNIT
    for done, gpus in enumerate(sorted(asked)):
        level = left // (len(asked) - done)
        if gpus * UNIT > level:
            return [min(each * UNIT, level) for each in asked]
        left -= gpus * UNIT
    return [gpus * UNIT for gpus in asked]


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Each round, the jobs that were given least of their max-min share so far run, as far as they fit.

    A gang cannot run on 3.5 GPUs of 8: it runs with all of them in some rounds and not in others, so that the average
    is its share. A job that ends within a round leaves its GPUs idle until the next; shorter rounds (`round_s`,
    seconds) preempt more. Among equals, whoever came first runs first.
    """

    round_s: float = 360.0
    name: str = "maxmin"

    def planner(self, view: View) -> Deficits:
        return Deficits(view)


@dataclass(slots=True)
class Deficits:
    """Max-min fairness at work: what each job is owed, in `UNIT` parts of a GPU-tick.

    A job is owed its share for each tick since it came, less what it ran; `share` is that of the last round. A next
    attempt starts with nothing owed.
    """

    view: View
    owed: dict[int, int] = field(default_factory=dict)
    share: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)  # ticks run when last counted
    counted: int = 0

    def arrive(self, row: int) -> None:
        self.owed[row], self.share[row], self.seen[row] = 0, 0, self.view.attained(row)

    def leave(self, row: int) -> None:
        del self.owed[row], self.share[row], self.seen[row]

    def plan(self) -> list[int]:
        """Settle what is owed, share out again, and take the gangs that are owed most for each of their GPUs while they
        fit.

        Among equals, the order of arrival.
        """
        view, rows = self.view, list(self.owed)
        elapsed, self.counted = view.now - self.counted, view.now
        for row in rows:
            ran = view.attained(row) - self.seen[row]
            self.owed[row] += self.share[row] * elapsed - view.gpus[row] * ran * UNIT
            self.seen[row] += ran
        self.share = dict(zip(rows, maxmin_shares([view.gpus[row] for row in rows], view.total_gpus), strict=True))
        rows.sort(key=lambda row: -(self.owed[row] + self.share[row]) / view.gpus[row])
        plan, free = [], view.total_gpus
        for row in rows:
            if view.gpus[row] <= free:
                plan.append(row)
                free -= view.gpus[row]
        return plan
