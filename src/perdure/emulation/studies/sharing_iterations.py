"""Programs that share a GPU an iteration at a time (P. Yu and M. Chowdhury, "Salus", MLSys 2020).

One, two and three equal programs in turn: what each gets of its speed alone, by the orders of `emulation/sharing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.sharing import ORDERS, Order, SharingProgram
from perdure.emulation.studies.result import StudyTable

ITERATION_S, OFF_GPU_S, LONG_S = 0.3, 0.0, 200.0


def speeds(order: Order, work: Sequence[tuple[float, float]], until_s: float = LONG_S) -> list[float]:
    """Iterations a second of programs that share a GPU; each has its seconds on the GPU and off it."""
    programs = [SharingProgram(str(i)) for i in range(len(work))]
    ready, counts, now = [0.0] * len(work), [0] * len(work), 0.0
    while now < until_s:
        waiting = [i for i, instant in enumerate(ready) if instant <= now]
        if not waiting:
            now = min(ready)
            continue
        for i in waiting:
            programs[i].asked_at, programs[i].off_gpu_s = ready[i], work[i][1]
        chosen = int(order([programs[i] for i in waiting]).name)
        now += work[chosen][0]
        programs[chosen].served_s += work[chosen][0]
        counts[chosen] += 1
        ready[chosen] = now + work[chosen][1]
    return [count / now for count in counts]


def salus(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - nothing is random, nor measured
    """What each of one, two and three programs gets of its speed alone."""
    rows = []
    for name, order in ORDERS.items():
        alone = speeds(order, [(ITERATION_S, OFF_GPU_S)])[0]
        for count in (1, 2, 3):
            found = speeds(order, [(ITERATION_S, OFF_GPU_S)] * count)
            rows.append((name, float(count), min(found) / alone, max(found) / alone))
    return StudyTable(
        ("order", "programs", "share, least", "share, most"), tuple(rows), "equal iterations, no time off the GPU"
    )
