"""How much past jobs took, by a site's own accounting: what an index rests on before the journal knows enough jobs."""

from __future__ import annotations

from pathlib import Path

from perdure.live_policy.policies import thinned

MOST_BYTES = 4 << 30


def past_services(history: Path | None) -> tuple[float, ...]:
    """GPU-seconds that jobs of a trace took, all attempts together, thinned to a sample; empty without a trace.

    Raises `InputError`.
    """
    if history is None:
        return ()
    import numpy as np

    from perdure.simulation.workload import attempts_of
    from perdure.traces.read import read  # the readers of traces load much, and few sites name one

    table = read(history, skip_bad=True, most_bytes=MOST_BYTES).table
    first, work_s, _ = attempts_of(table)
    if not len(table):
        return ()
    services = np.add.reduceat(work_s, first[:-1]) * table.gpus
    return thinned(services[services > 0].tolist())
