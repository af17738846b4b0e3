"""The policies that give jobs shares round by round, by their names.

Each name makes a new policy: they remember what they gave, so no two replays share one. Those that end in ``-blind``
take all GPU types as equal: what they lose is what knowing the types is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from perdure.scheduling.sia_policy import Sia
from perdure.scheduling.themis_policy import Themis
from perdure.scheduling.tiresias_policy import Tiresias

ELASTIC: Mapping[str, Callable[[], ElasticPolicy]] = MappingProxyType(
    {
        "sia": Sia,
        "gavel-las": lambda: Gavel("gavel-las", objectives.Snapshot(gavel.least_attained_middle)),
        "gavel-las-blind": lambda: Gavel(
            "gavel-las-blind", objectives.Snapshot(gavel.least_attained_middle), blind=True
        ),
        "gavel-water": lambda: Gavel("gavel-water", objectives.Snapshot(gavel.water_filling)),
        "gavel-ftf": lambda: Gavel("gavel-ftf", objectives.FinishTimeFairness()),
        "gavel-ftf-blind": lambda: Gavel("gavel-ftf-blind", objectives.FinishTimeFairness(), blind=True),
        "gavel-makespan": lambda: Gavel("gavel-makespan", objectives.makespan),
        "gavel-cost": lambda: Gavel("gavel-cost", objectives.cheapest),
        "gavel-fifo": lambda: Gavel("gavel-fifo", objectives.first_come),
        "gavel-fifo-blind": lambda: Gavel("gavel-fifo-blind", objectives.KeptTypes(), blind=True, only_granted=True),
        "gavel-las-packed": lambda: Gavel("gavel-las-packed", packing.PackedSnapshot(gavel_packed.least_attained)),
        "gavel-ftf-packed": lambda: Gavel("gavel-ftf-packed", packing.PackedFinishTimeFairness()),
        "gavel-makespan-packed": lambda: Gavel("gavel-makespan-packed", packing.makespan),
        "gavel-fifo-packed": lambda: Gavel("gavel-fifo-packed", packing.first_come),
        "gavel-gandiva": lambda: Gavel("gavel-gandiva", packing.RandomPairs()),
        "gandiva": Gandiva,
        "pollux": Pollux,
        "themis": Themis,
        "tiresias": Tiresias,
        "mesos": Mesos,
        "optimus": Optimus,
        "allox": lambda: Gavel("allox", objectives.AlloX()),
    }
)


SHARING = frozenset(name for name in ELASTIC if name.endswith(("-packed", "gandiva")))
"""Those under which two jobs may share GPUs."""


def elastic_named(name: str) -> ElasticPolicy:
    """Raises `ConfigError` for an unknown name."""
    if name not in ELASTIC:
        known = ", ".join(ELASTIC)
        raise ConfigError(f"--policy {name}", "no policy of that name plans jobs with profiles", f"Use one of: {known}")
    return ELASTIC[name]()
