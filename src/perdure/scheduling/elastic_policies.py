"""The policies that give jobs shares round by round, by their names.

Each name makes a new policy: they remember what they gave, so no two replays share one. Those that end in ``-blind``
take all GPU types as equal: what they lose is what knowing the types is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perdure.errors import ConfigError
from perdure.scheduling import gavel, gavel_packed
from perdure.scheduling import gavel_objectives as objectives
from perdure.scheduling import gavel_packing as packing
from perdure.scheduling.elastic import ElasticPolicy
from perdure.scheduling.gandiva import Gandiva
from perdure.scheduling.gavel_policy import Gavel
from perdure.scheduling.mesos import Mesos
from perdure.scheduling.optimus import Optimus
from perdure.scheduling.pollux import Pollux
from perdure.scheduling.pools import TypePools
from perdure.scheduling.sia_policy import Sia
from perdure.scheduling.themis_policy import Themis
from perdure.scheduling.tiresias_policy import Tiresias


@dataclass(frozen=True, slots=True)
class ElasticForm:
    """A policy that plans with profiles: how the field names it, how it chooses, and a new one by calling this."""

    make: Callable[[], ElasticPolicy]
    title: str
    chooses: str

    def __call__(self) -> ElasticPolicy:
        return self.make()


ELASTIC: Mapping[str, ElasticForm] = MappingProxyType(
    {
        "sia": ElasticForm(Sia, "Sia", "Types, GPUs and batches for the best goodput, by an integer program"),
        "gavel-las": ElasticForm(
            lambda: Gavel("gavel-las", objectives.Snapshot(gavel.least_attained_middle)),
            "Gavel LAS",
            "Fractions of time by max-min fairness of throughput",
        ),
        "gavel-las-blind": ElasticForm(
            lambda: Gavel("gavel-las-blind", objectives.Snapshot(gavel.least_attained_middle), blind=True),
            "Gavel LAS blind",
            "The same, as if all GPU types were equal",
        ),
        "gavel-water": ElasticForm(
            lambda: Gavel("gavel-water", objectives.Snapshot(gavel.water_filling)),
            "Gavel water filling",
            "Max-min fairness, then for the second smallest, and so on",
        ),
        "gavel-ftf": ElasticForm(
            lambda: Gavel("gavel-ftf", objectives.FinishTimeFairness()),
            "Gavel finish-time fairness",
            "The largest rho as small as can be",
        ),
        "gavel-ftf-blind": ElasticForm(
            lambda: Gavel("gavel-ftf-blind", objectives.FinishTimeFairness(), blind=True),
            "Gavel finish-time fairness blind",
            "The same, as if all GPU types were equal",
        ),
        "gavel-makespan": ElasticForm(
            lambda: Gavel("gavel-makespan", objectives.makespan), "Gavel makespan", "The last end as early as can be"
        ),
        "gavel-cost": ElasticForm(
            lambda: Gavel("gavel-cost", objectives.cheapest), "Gavel cost", "The most throughput for the money"
        ),
        "gavel-fifo": ElasticForm(
            lambda: Gavel("gavel-fifo", objectives.first_come),
            "Gavel FIFO",
            "The oldest first, each on the type that suits it",
        ),
        "gavel-fifo-blind": ElasticForm(
            lambda: Gavel("gavel-fifo-blind", objectives.KeptTypes(), blind=True, only_granted=True),
            "Gavel FIFO blind",
            "The same, as if all GPU types were equal",
        ),
        "gavel-las-packed": ElasticForm(
            lambda: Gavel("gavel-las-packed", packing.PackedSnapshot(gavel_packed.least_attained)),
            "Gavel LAS packed",
            "Max-min fairness; two jobs may share GPUs",
        ),
        "gavel-ftf-packed": ElasticForm(
            lambda: Gavel("gavel-ftf-packed", packing.PackedFinishTimeFairness()),
            "Gavel finish-time fairness packed",
            "The same; two jobs may share GPUs",
        ),
        "gavel-makespan-packed": ElasticForm(
            lambda: Gavel("gavel-makespan-packed", packing.makespan),
            "Gavel makespan packed",
            "The same; two jobs may share GPUs",
        ),
        "gavel-fifo-packed": ElasticForm(
            lambda: Gavel("gavel-fifo-packed", packing.first_come),
            "Gavel FIFO packed",
            "The same; two jobs may share GPUs",
        ),
        "gavel-gandiva": ElasticForm(
            lambda: Gavel("gavel-gandiva", packing.RandomPairs()),
            "Gandiva as in Gavel",
            "Equal parts of all types, and pairs drawn by chance",
        ),
        "gandiva": ElasticForm(Gandiva, "Gandiva", "Time slices, packing, migration; jobs grow into idle GPUs"),
        "pollux": ElasticForm(
            lambda: TypePools(Pollux),
            "Pollux",
            "GPUs and batches for the best goodput, by a population search; a pool of each GPU type",
        ),
        "themis": ElasticForm(
            lambda: TypePools(Themis),
            "Themis",
            "Leases, auctioned among the apps that are worst off; a pool of each GPU type",
        ),
        "tiresias": ElasticForm(
            lambda: TypePools(Tiresias), "Tiresias", "Two queues by GPU time; a pool of each GPU type"
        ),
        "mesos": ElasticForm(
            Mesos, "Mesos", "Free GPUs are offered to the application with fewest; nobody is preempted"
        ),
        "optimus": ElasticForm(
            lambda: TypePools(Optimus), "Optimus", "One GPU more to whom it helps most; a pool of each GPU type"
        ),
        "allox": ElasticForm(
            lambda: Gavel("allox", objectives.AlloX()),
            "AlloX",
            "Jobs of one GPU, matched to GPUs for the least sum of times",
        ),
    }
)


SHARING = frozenset(name for name in ELASTIC if name.endswith(("-packed", "gandiva")))
"""Those under which two jobs may share GPUs."""

LAS_2D = "las-2d"
POOLED = frozenset(("pollux", "themis", "tiresias", LAS_2D, "optimus"))
"""Those that know one GPU type, and keep each of several apart."""


def elastic_named(name: str) -> ElasticPolicy:
    """Raises `ConfigError` for an unknown name.

    ``las-2d``, which is no name of `ELASTIC` as it is one of a policy of jobs with a running time, is ``tiresias``.
    """
    if name == LAS_2D:
        return TypePools(lambda: Tiresias(LAS_2D))
    if name not in ELASTIC:
        known = ", ".join((*ELASTIC, LAS_2D))
        raise ConfigError(f"--policy {name}", "no policy of that name plans jobs with profiles", f"Use one of: {known}")
    return ELASTIC[name]()
