"""What the service knows of a failure's surroundings, for triage (`triage.context`)."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model.jobs import Attempt
from perdure.retry.history import NEARBY_S, Fleet, NodeTrouble
from perdure.service.core.case import Case
from perdure.triage.evidence.context import Context


def context_of(attempt: Attempt, case: Case | None, fleet: Fleet, free_bytes: int | None, now: float) -> Context:
    """The surroundings of the failure of `attempt`; `free_bytes` is the room on its log's disk, None if unknown."""
    near, far = _troubles(attempt, fleet, now)
    return Context(
        ran_s=attempt.elapsed_s,
        walltime_s=case.job.walltime_s if case else None,
        attempt_number=len(case.past) + 1 if case else None,
        others_on_node=len({trouble.user for trouble in near}),
        others_elsewhere=tuple(dict.fromkeys((trouble.user, trouble.likeness) for trouble in far)),
        free_bytes=free_bytes,
    )


def _troubles(attempt: Attempt, fleet: Fleet, now: float) -> tuple[list[NodeTrouble], list[NodeTrouble]]:
    """What befell other users' jobs recently: on the nodes of `attempt`, and elsewhere."""

    def of_others(found: Iterable[NodeTrouble]) -> list[NodeTrouble]:
        return [each for each in found if each.user != attempt.user and now - each.time_s <= NEARBY_S]

    here = set(attempt.failed_nodes or attempt.nodes)
    near = [each for name in here for each in of_others(fleet.troubles.get(name, ()))]
    far = [each for name, troubles in fleet.troubles.items() if name not in here for each in of_others(troubles)]
    return near, far
