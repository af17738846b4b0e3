"""A backfill cycle of compiled Slurm.

A job that finds no place before the `horizon` is passed over: from there on fewer GPUs are free than anybody needs, so
that no reservation begins before and ends behind it, and none behind it can keep a job from starting now. The schedule
is therefore the plain one; only the planned starts behind the horizon are not known. Where reservations are counted
(bf_job_part_count_reserve) they would matter, and nothing is passed over.

What is free is a list of stretches of time (`free_gpus.Forecast`): within one the number of free GPUs does not change.
The first begins now, and later ones are worked out from the expected ends as a search comes to them, since most cycles
end long before the last running job does. Instants and lengths are ticks, sizes are GPUs.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.expected_ends import expect
from perdure.simulation.compiled.free_gpus import cut, find_in, forecast_from, go_on, widest_before
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.limit_counts import limited
from perdure.simulation.compiled.slurm_queue import length_of, start_at


@kernel
def backfill_cycle(state, part):  # type: ignore[no-untyped-def]
    """A backfill cycle; whether it ended as it had started as many jobs as it may.

    It ends early where nobody can start any more. At most `max_job_test` jobs are tested; a test walks along the
    stretches up to the horizon. Ended so by `max_job_start`, it has left jobs that could start, and the next cycle
    takes place though nothing else happens until then.

    The end of a reservation is rounded down to the resolution, but not to where it begins: it would keep nobody away.
    Ends of the jobs that were started go into the agenda last, so that the forecast does not count their GPUs twice.
    """
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    exact = how.part_count_reserve > 0  # then each reservation counts
    horizon, widest = NEVER, NEVER
    place, started, tested = 0, 0, 0
    forecast_from(part.forecast, now, state.places.tally[0].total_free)
    part.reserved[:] = 0
    part.tested[:] = 0
    while place < tally.many and horizon > now and tally.narrowest <= part.forecast.stretch[0].free:
        row = part.queue[place]
        gpus = np.int64(state.job[row].gpus)
        if limited(part.limits, row, gpus) or (how.bounded and one_too_many(part, row)):
            place += 1
            continue
        tested += 1
        if tested > how.max_job_test:
            break
        length = length_of(state, part, row)
        if not exact and (gpus > widest or length > horizon - now):
            place += 1
            continue
        begin, _ = find_in(part.forecast, part.agenda, gpus, length, horizon)
        tick = part.forecast.stretch[begin].tick if begin >= 0 else NEVER
        if tick == now and start_at(state, part, place):
            new = _take(part, now, now + length, gpus, horizon)
            part.started[started] = row
            started += 1
            if started == how.max_job_start:
                break
        else:
            place += 1
            new = horizon
            if tick <= now + how.window and reserves(state, part, row):
                part.reserved[part.job[row].partition] += 1
                last = tick + length
                if last - last % how.resolution > tick:
                    last -= last % how.resolution
                new = _take(part, tick, last, gpus, horizon)
        if new < horizon and not exact:
            horizon, widest = new, widest_before(part.forecast, new)
    for i in range(started):
        expect(part.agenda, part.job[part.started[i]].ends, np.int64(state.job[part.started[i]].gpus))
    return started > 0 and started == how.max_job_start


@kernel
def _take(part, first, last, gpus, horizon):  # type: ignore[no-untyped-def]
    """Take GPUs from one tick to another; return the new horizon, from which on less is left than anybody asks for.

    Stretches are worked out up to the end of the reservation first: what comes free later is not touched.
    """
    forecast, tally = part.forecast, part.forecast.tally[0]
    while forecast.stretch[tally.many - 1].tick < last and go_on(forecast, part.agenda):
        pass
    begin = _split(forecast, first)
    end = _split(forecast, last)
    for i in range(begin, end):
        forecast.stretch[i].free -= gpus
        if forecast.stretch[i].free < part.tally[0].narrowest:
            horizon = min(horizon, forecast.stretch[i].tick)
    return horizon


@kernel
def _split(forecast, tick):  # type: ignore[no-untyped-def]
    """Split the stretch at the tick; the position of the part that begins there.

    A binary search among the stretches that are worked out; one that begins there already is left whole.
    """
    low, high = np.int64(0), forecast.tally[0].many
    while low < high:
        middle = (low + high) >> 1
        if forecast.stretch[middle].tick < tick:
            low = middle + 1
        else:
            high = middle
    cut(forecast, low, tick)
    return low


@kernel
def reserves(state, part, row):  # type: ignore[no-untyped-def]
    """Whether a job that cannot start now gets a reservation.

    bf_job_part_count_reserve bounds those of a partition (0: no bound); bf_min_prio_reserve and bf_min_age_reserve
    (here in ticks) are what a job must have. One that gets none may be overtaken by any job behind it.
    """
    how, job = part.how[0], part.job[row]
    if how.part_count_reserve and part.reserved[job.partition] >= how.part_count_reserve:
        return False
    return job.priority >= how.min_prio_reserve and state.tally[0].now - job.since >= how.min_age_reserve


@kernel
def one_too_many(part, row):  # type: ignore[no-untyped-def]
    """Whether the bound on jobs of its partition, user or association is reached; else the job is counted.

    bf_max_job_part, bf_max_job_user, bf_max_job_user_part and bf_max_job_assoc, 0 for no bound. `tested` is four tables
    in one array: by partition, by user, by user and partition, by association. A job that is over one bound uses up
    none of the others.
    """
    how, job, tested = part.how[0], part.job[row], part.tested
    of_user = how.partitions + job.user
    of_both = how.partitions + how.users + job.user * how.partitions + job.partition
    of_assoc = how.partitions + how.users + how.users * how.partitions + job.node
    if (
        (how.max_part and tested[job.partition] >= how.max_part)
        or (how.max_user and tested[of_user] >= how.max_user)
        or (how.max_user_part and tested[of_both] >= how.max_user_part)
        or (how.max_assoc and tested[of_assoc] >= how.max_assoc)
    ):
        return True
    tested[job.partition] += 1
    tested[of_user] += 1
    tested[of_both] += 1
    tested[of_assoc] += 1
    return False
