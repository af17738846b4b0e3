"""A backfill cycle: jobs start early where, by the limits known, they delay no reservation of a job before them.

Jobs are tested in order, at most `max_job_test` of them. One that fits now, for as long as its limit is, starts;
another one reserves the earliest stretch in which it fits, unless that begins after the window. By default every tested
job gets a reservation: conservative backfilling of the first 500 jobs, not EASY. Where limits are longer than the
window, large jobs are not reserved and can starve (set bf_window to MaxTime at least).

Source: plugins/sched/backfill/backfill.c of SchedMD/slurm 284c3b9, ``_attempt_backfill``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, replace

from perdure.scheduling.slurm.eligible import SlurmReason
from perdure.scheduling.slurm.pass_state import PassState
from perdure.scheduling.slurm.settings import BackfillSettings
from perdure.scheduling.slurm.space import Space
from perdure.slurm_words.reasons import PRIORITY, RESERVATION


@dataclass(frozen=True, slots=True)
class CycleTimes:
    """Times of the settings in ticks."""

    window: int
    resolution: int
    min_age_reserve: int
    end_window: int

    @classmethod
    def of(cls, settings: BackfillSettings, ticks_per_s: int) -> CycleTimes:
        """Rounded to ticks; a resolution of one tick at least."""
        resolution = max(1, round(settings.resolution_s * ticks_per_s))
        others_s = settings.window_s, settings.min_age_reserve_s, settings.end_window_s
        window, age, end_window = (round(s * ticks_per_s) for s in others_s)
        return cls(window, resolution, age, end_window)


def backfill_cycle(
    queue: Sequence[int],
    state: PassState,
    space: Space,
    settings: BackfillSettings,
    times: CycleTimes,
    priority: Callable[[int], int],
    since: Callable[[int], int],
) -> Generator[int, None, bool]:
    """Name the jobs to start, in order; returns whether `max_job_start` ended it before all had been tested.

    A generator, as `Ranking.order`: after each name the state tells whether the job was started. One that was named
    and found no room is treated as one that cannot start now. Writes to ``state.holds`` when each tested job is
    planned to start (`planned`, a tick) and how many are before it. `priority` and `since` are asked for waiting jobs
    only.

    Costs a search in the plan for each tested job, ``O(max_job_test * (running + max_job_test))``.
    """
    view, started, tested = state.view, 0, 0
    bounds, reserved = _Bounds(state, settings), Counter[int]()
    plan = space.plan(state, times.resolution, times.end_window)
    for ahead, row in enumerate(queue):
        if state.limited(row) is not None or bounds.exceeded(row):
            continue
        tested += 1
        if tested > settings.max_job_test:
            break
        now, length, partition = view.now, state.length(row), int(state.requests.partition[row])
        start = plan.earliest(row, partition, length)
        if start is None:
            continue
        if start == now:
            if plan.offer(row):
                yield row
            space.settle(row)
            if state.take_note(row):
                plan.run(row, now + length)
                started += 1
                if started == settings.max_job_start:
                    return True
                continue
        if start > now + times.window:
            continue
        state.holds[row] = _hold(state, row, start, ahead)
        if _reserves(settings, times, priority(row), now - since(row), reserved[partition]):
            reserved[partition] += 1
            plan.reserve(row, start, start + length)
    return False


def _reserves(settings: BackfillSettings, times: CycleTimes, priority: int, age: int, reserved: int) -> bool:
    """Whether a job that cannot start now gets a reservation."""
    most = settings.job_part_count_reserve
    return (most == 0 or reserved < most) and priority >= settings.min_prio_reserve and age >= times.min_age_reserve


def _hold(state: PassState, row: int, start: int, ahead: int) -> SlurmReason:
    """What holds a job that was tested and not started. ``Reservation`` where enough GPUs are free: others have
    reserved them.
    """
    hold = state.holds[row]
    reason = hold.reason
    if reason == PRIORITY and state.view.free_gpus >= state.view.gpus[row]:
        reason = RESERVATION
    return replace(hold, reason=reason, planned=start, ahead=ahead)


class _Bounds:
    """How many jobs of a partition, a user and an association are tested at most in a cycle (bf_max_job_part and its
    like).
    """

    def __init__(self, state: PassState, settings: BackfillSettings) -> None:
        self.state, self.tested = state, Counter[Hashable]()
        self.most = (
            settings.max_job_part, settings.max_job_user, settings.max_job_user_part, settings.max_job_assoc
        )  # fmt: skip

    def exceeded(self, row: int) -> bool:
        """Whether a job is one too many; else it is counted."""
        if not any(self.most):
            return False
        user, partition = self.state.view.user[row], int(self.state.requests.partition[row])
        owners = (
            (partition,),
            ("user", user),
            (user, partition),
            ("assoc", self.state.requests.associations.of_job[row]),
        )
        bounded = [(owner, most) for owner, most in zip(owners, self.most, strict=True) if most]
        if any(self.tested[owner] >= most for owner, most in bounded):
            return True
        self.tested.update(owner for owner, _ in bounded)
        return False
