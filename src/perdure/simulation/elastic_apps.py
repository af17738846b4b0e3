"""Apps in a replay in rounds: which of its jobs search for one model together."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.profiles import AdaptiveJobs
from perdure.scheduling.tuning import TUNERS, App
from perdure.simulation.elastic_job import RunningJob


def apps_of(jobs: AdaptiveJobs, running: Sequence[RunningJob]) -> tuple[App, ...]:
    """The apps of these jobs, in the order in which they come."""
    told = jobs.apps
    if told is None:
        return ()
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(told.app.tolist()):
        if name:
            rows.setdefault(name, []).append(row)
    return tuple(
        App(
            name,
            TUNERS[str(told.search[own[0]])],
            {row: running[row].seen for row in own},
            {row: float(told.score[row]) for row in own},
        )
        for name, own in rows.items()
    )
