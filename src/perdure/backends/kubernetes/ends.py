"""Ends stay as they were first told: what they were read from changes, as nodes come back and pods go."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.backends.kubernetes.picture import SightedJob
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState

MOST_ENDS = 20_000


class RememberedEnds:
    """The ends that were told, the newest of them."""

    def __init__(self) -> None:
        self._ends: dict[AttemptId, Attempt] = {}

    def apply(self, sighted: SightedJob) -> SightedJob:
        """The job with those of its attempts as they were told that have been told as over."""
        attempts: list[Attempt] = []
        for attempt in sighted.attempts:
            told = self._ends.get(attempt.id)
            if told is None:
                attempts.append(attempt)
                continue
            attempts.append(told)
            if (
                told.state is AttemptState.LAUNCH_FAILED
                and not attempt.state.is_over
                and attempt.start_s > told.start_s
            ):
                # It does start, after all: that is an attempt of its own.
                late = AttemptId(told.id.cluster, told.id.job_id, max(int(attempt.start_s), told.id.incarnation + 1))
                attempts.append(replace(attempt, id=late))
        return SightedJob(sighted.job, tuple(attempts), sighted.groups, sighted.document)

    def remember(self, sighted: SightedJob) -> None:
        """These ends are told now."""
        for attempt in sighted.attempts:
            if attempt.state.is_over:
                self._ends.setdefault(attempt.id, attempt)
        while len(self._ends) > MOST_ENDS:
            del self._ends[next(iter(self._ends))]
