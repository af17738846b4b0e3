"""The policies that have a compiled form, and the module of each. `loop` says what such a form is; numba is not loaded
here.

A policy belongs here if replays of it are too slow without: 100,000 jobs in about a second is what the loops are for.
Each stays a second text of the same policy, and `tests/simulation/test_compiled.py` holds it to the plain one.
"""

from __future__ import annotations

from perdure.scheduling import backfill, capacity, drf, fifo, las, maxmin, philly, shortest, tetris
from perdure.scheduling.protocol import Policy
from perdure.scheduling.slurm.policy import Slurm

COMPILED: dict[type[Policy], str] = {
    fifo.Fifo: "nonpreemptive",
    shortest.ShortestJob: "nonpreemptive",
    capacity.Capacity: "nonpreemptive",
    drf.DominantShare: "nonpreemptive",
    shortest.ShortestRemaining: "preemptive",
    shortest.ShortestService: "preemptive",
    shortest.FewestGpus: "preemptive",
    las.LeastAttained: "preemptive",
    las.Gittins2D: "preemptive",
    backfill.Easy: "backfill",
    backfill.Conservative: "conservative",
    backfill.ReplannedConservative: "backfill",
    philly.Philly: "philly",
    tetris.Tetris: "packing",
    maxmin.MaxMin: "rounds",
    Slurm: "slurm",
}
"""The module of this package for each policy, by its very class: what derives from one may schedule otherwise."""
