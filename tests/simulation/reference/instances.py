"""Small instances drawn at random, and each policy in both forms: the package's own and the textbook's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.maxmin import MaxMin
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.simulate import Engine, simulate
from tests.simulation.reference import backfilling, cluster, preempting, queues, rounds, tiresias

QUOTAS = {"a": 5, "b": 2, "c": 1}
EQUAL = dict.fromkeys(QUOTAS, 1)
LIMITS = (20, 60)
SAMPLES = (3, 8, 8, 20, 45, 90, 200)
ROUND_S = 7

REFERENCES: dict[str, Callable[[], cluster.Policy]] = {
    "fifo": lambda: queues.Queue(blocks=True),
    "fjf": lambda: queues.Queue(blocks=False),
    "sjf": lambda: queues.Queue(blocks=True, key=lambda job: job.run),
    "sjf:skip": lambda: queues.Queue(blocks=False, key=lambda job: job.run),
    "drf": lambda: queues.Turns(EQUAL, dominant=True),
    "capacity": lambda: queues.Turns(QUOTAS),
    "tetris": queues.Tetris,
    "srtf": lambda: preempting.Least(lambda job: job.left),
    "srsf": lambda: preempting.Least(lambda job: job.gpus * job.left),
    "fewest-gpus": lambda: preempting.Least(lambda job: job.gpus),
    "philly": lambda: preempting.Lending(QUOTAS),
    "las": lambda: tiresias.Queues(LIMITS, counts_gpus=False),
    "las-2d": lambda: tiresias.Queues(LIMITS, counts_gpus=True),
    "las-2d:0.5": lambda: tiresias.Queues(LIMITS, counts_gpus=True, knob=Fraction(1, 2)),
    "las-2d:2": lambda: tiresias.Queues(LIMITS, counts_gpus=True, knob=Fraction(2)),
    "gittins-2d": lambda: tiresias.Queues(LIMITS, counts_gpus=True, samples=SAMPLES),
    "easy": backfilling.Easy,
    "conservative": lambda: backfilling.Conservative(keeps=True),
    "conservative:replan": lambda: backfilling.Conservative(keeps=False),
    "maxmin": lambda: rounds.MaxMin(ROUND_S),
}


@dataclass(frozen=True)
class Instance:
    """Some jobs that meet, tie, and run over their limits or have none."""

    seed: int
    total: int
    table: JobTable
    others: tuple[int, ...] = ()  # CPUs and MiB of the cluster, where they count

    @classmethod
    def drawn(cls, seed: int) -> Instance:
        rng = np.random.default_rng(seed)
        n, total = int(rng.integers(2, 13)), int(rng.choice([4, 8, 10]))
        submit = np.sort(rng.integers(0, rng.choice([4, 20, 50]), n)).astype(float)
        run = rng.integers(0, rng.choice([4, 30, 60]), n).astype(float)
        limited = rng.random(n) < rng.choice([0, 0.7, 1])
        limit = np.where(limited, np.ceil(run * rng.uniform(rng.choice([0.7, 1.0]), 3, n)), np.nan)
        gpus = np.minimum(total, rng.choice([1, 2, 3, 4, 8], n, p=[0.35, 0.25, 0.1, 0.2, 0.1]))
        names, owner = np.arange(n).astype(str), rng.choice(list("abc"), n)
        return cls(seed, total, JobTable(names, submit, gpus, run, vc=owner, user=owner, walltime_s=limit))

    @classmethod
    def with_others(cls, seed: int) -> Instance:
        """The same jobs, which ask for CPUs and memory too, none of it at times; either may be what is scarce."""
        plain, rng = cls.drawn(seed), np.random.default_rng((seed, 1))
        n, others = len(plain.table), (int(rng.choice([9, 16, 40])), int(rng.choice([18, 30, 100])))
        cpus = np.minimum(others[0], plain.table.gpus * rng.integers(0, 4, n) + rng.integers(0, 3, n))
        mem_mib = np.minimum(others[1], plain.table.gpus * rng.integers(0, 6, n) + rng.integers(0, 3, n))
        return cls(seed, plain.total, replace(plain.table, cpus=cpus, mem_mib=mem_mib), others)

    def by_reference(self, name: str) -> list[tuple[int | None, ...]]:
        """Start, end, preemptions and promotions of each job, as the textbook has them."""
        table = self.table
        limits = [int(limit) if limit > 0 else None for limit in table.walltime_s]
        columns = (table.cpus, table.mem_mib)[: len(self.others)]
        others = list(zip(*(column.tolist() for column in columns), strict=True)) or [()] * len(table)
        rows = zip(table.gpus, table.submit_s, table.duration_s, limits, table.user, others, strict=True)
        jobs = [
            cluster.Job(i, int(gpus), int(submit), int(run), limit, str(owner), more)
            for i, (gpus, submit, run, limit, owner, more) in enumerate(rows)
        ]
        cluster.schedule(jobs, self.total, REFERENCES[name](), self.others)
        return [(job.start, job.end, job.preempted, job.promoted) for job in jobs]

    def by_engine(self, name: str, engine: Engine) -> list[tuple[int, ...]]:
        """The same, as the package has them."""
        quotas = {vc: float(gpus) for vc, gpus in QUOTAS.items()}
        options = PolicyOptions(tuple(map(float, LIMITS)), tuple(map(float, SAMPLES)), quotas)
        policy: Policy = MaxMin(ROUND_S) if name == "maxmin" else policy_named(name, options)
        spec = f"1x{self.total}" + "".join(map(str.format, (":cpu={}", ":mem={}M"), self.others))
        found = simulate(self.table, Cluster.parse(spec), policy, engine=engine)
        columns = found.start_s, found.end_s, found.preempted, found.promoted
        return list(zip(*(column.astype(int).tolist() for column in columns), strict=True))


def differing(
    name: str, engine: Engine, seeds: range, drawn: Callable[[int], Instance] = Instance.drawn
) -> Iterator[int]:
    """The seeds of the instances on which an engine differs from the reference."""
    for seed in seeds:
        instance = drawn(seed)
        if instance.by_engine(name, engine) != instance.by_reference(name):
            yield seed
