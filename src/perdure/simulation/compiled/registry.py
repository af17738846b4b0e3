"""Which policies have a compiled form, and where. `loop` says what such a form is; numba is not loaded here."""

from __future__ import annotations

from perdure.scheduling.backfill import Conservative, Easy
from perdure.scheduling.capacity import Capacity
from perdure.scheduling.drf import DominantShare
from perdure.scheduling.fifo import Fifo
from perdure.scheduling.las import Gittins2D, LeastAttained
from perdure.scheduling.philly import Philly
from perdure.scheduling.protocol import Policy
from perdure.scheduling.shortest import FewestGpus, ShortestJob, ShortestRemaining, ShortestService
from perdure.scheduling.slurm.policy import Slurm

COMPILED: dict[type[Policy], str] = {
    Fifo: "nonpreemptive",
    ShortestJob: "nonpreemptive",
    Capacity: "nonpreemptive",
    DominantShare: "nonpreemptive",
    ShortestRemaining: "preemptive",
    ShortestService: "preemptive",
    FewestGpus: "preemptive",
    LeastAttained: "preemptive",
    Gittins2D: "preemptive",
    Easy: "backfill",
    Conservative: "backfill",
    Philly: "philly",
    Slurm: "slurm",
}
"""The module of this package for each policy, by its very class: what derives from one may schedule otherwise."""
