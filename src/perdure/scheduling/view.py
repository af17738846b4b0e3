"""The view: what a policy may see of the cluster and its jobs, kept up to date by whoever runs the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.scheduling.asks import Asks
from perdure.scheduling.placement.resources import NodeResource, Stock
from perdure.scheduling.placement.room import Room


@dataclass(slots=True)
class View:
    """The jobs that are there, at `now`. Jobs are named by their row; all times are whole ticks.

    A policy reads it. It changes while a pass goes on: a job that has just been started is among `running`. Rows are in
    the order of submit. Columns have one entry a job, also for jobs that have not come yet: a policy that reads those
    looks into the future (`shares.quotas` does, on purpose).

    Invariants: no job is both in `waiting` and in `running`; `free_gpus` is `total_gpus` less the gangs that run.

    >>> view = View([2, 1], [0, 5], [60, 10], [0, 0], [0, 0], [0, 0], ("vc",), ("ada",), total_gpus=4, ticks_per_s=1)
    >>> view.running[0], view.now = 20, 50  # job 0 runs since tick 20
    >>> view.executed(0), view.remaining(0), view.expected_end(0)
    (30, 30, 80)
    """

    gpus: Sequence[int]  # of each job's gang
    submit: Sequence[int]
    work: list[int]  # running time that the present attempt takes in all
    walltime: Sequence[int]  # the limit asked for; 0 where there is none
    group: Sequence[int]  # virtual cluster, numbered from 0 in the order of their names
    user: Sequence[int]
    groups: tuple[str, ...]
    users: tuple[str, ...]
    total_gpus: int
    ticks_per_s: int
    asks: Asks = field(default_factory=Asks)
    room: Room | None = None  # where the jobs run; None for a view without one
    now: int = 0
    free_gpus: int = 0
    waiting: dict[int, None] = field(default_factory=dict)  # in the order in which they came
    running: dict[int, int] = field(default_factory=dict)  # each with the tick since when it runs
    before: list[int] = field(default_factory=list)  # run by the present attempt before it was last started
    restart: list[int] = field(default_factory=list)  # with which the present attempt begins when it runs
    earlier: list[int] = field(default_factory=list)  # run by attempts that are over
    promotions: list[int] = field(default_factory=list)  # how often a policy moved the job up
    over: dict[int, bool] = field(default_factory=dict)  # jobs that do not come back: well or not; where any depends

    def __post_init__(self) -> None:
        n = len(self.gpus)
        self.before, self.restart, self.earlier, self.promotions = [0] * n, [0] * n, [0] * n, [0] * n
        self.free_gpus = self.total_gpus

    @property
    def stock(self) -> Stock | None:
        """What is free besides GPUs; None where GPUs alone are counted."""
        return None if self.room is None else self.room.stock

    @property
    def resources(self) -> tuple[NodeResource, ...]:
        """What is counted besides GPUs."""
        stock = self.stock
        return () if stock is None else stock.resources

    def executed(self, row: int) -> int:
        """Ticks that the present attempt has run, those before a preemption included: preempted work is kept."""
        since = self.running.get(row)
        return self.before[row] if since is None else self.before[row] + self.now - since

    def remaining(self, row: int) -> int:
        """Ticks that the present attempt must still run: the truth, which only a clairvoyant policy (SRTF, SRSF) may
        use.
        """
        return self.work[row] - self.executed(row)

    def works_from(self, row: int) -> int:
        """The tick from which a running job works: once it was preempted it restarts first."""
        return self.running[row] + self.restart[row]

    def expected_end(self, row: int) -> int:
        """The tick at which the attempt of a job that runs, or would start now, is over as far as is known beforehand.

        By its walltime if it has one, else by its true running time; a job past its limit is expected to end next.
        Always after `now`, so that a reservation is never in the past.
        """
        limit = self.walltime[row] or self.work[row]
        return max(self.now + 1, self.now + limit - self.executed(row))

    def attained(self, row: int) -> int:
        """Ticks that the job has run, all its attempts together."""
        return self.earlier[row] + self.executed(row)
