"""What was forecast for jobs like a successor against what came, kept in the user's cache and made more of bit by bit.

Two sources: what ``perdure when JOB`` said, and what would have been said of jobs of the past when they came.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import numpy as np

from perdure.cli.kept import KeptFolder
from perdure.cli.kept_promises import ANSWERED, KEEP_S, read_promises, write_promises
from perdure.succession.protocol import Forecast, ForecastOutcome
from perdure.waits.answer import AnswerBasis
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS, WaitForecast
from perdure.waits.hindcast import FIT_DAYS
from perdure.waits.own_errors import kind_of
from perdure.waits.past import DAY_S
from perdure.waits.past_promises import promise_then, rows_alike
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.unfinished import with_unfinished

MOST = 60  # outcomes that are told: of more a margin learns little
SEED = 0


def outcomes_alike(
    job: QueuedJob, queue: Queue, site: AnswerBasis, kept: KeptFolder, but: Collection[str], within_s: float
) -> tuple[ForecastOutcome, ...]:
    """Of jobs of one kind with `job`, the newest last; none of the jobs `but`, whose forecasts are known better.

    Asks about jobs of the past that have not been asked about yet, at least one, until `within_s` have passed.
    """
    kind = kind_of(job.partitions, job.gpus)
    there = [*read_promises(kept, queue, site.past, ANSWERED), *_of_the_past(job, queue, site, kept, but, within_s)]
    waiting = frozenset(each.job_id for each in queue.jobs if each.is_waiting)
    first: dict[str, Promise] = {}
    for one in sorted(there, key=lambda one: one.asked_s):
        known = one.raw_s and (one.start_s is not None or one.job_id in waiting) and one.asked_s < queue.now_s
        if known and one.kind == kind and one.job_id not in but:
            first.setdefault(one.job_id, one)  # several answers about one job are as one
    return tuple(_outcome(one, job, site, queue.now_s) for one in list(first.values())[-MOST:])


def _of_the_past(
    job: QueuedJob, queue: Queue, site: AnswerBasis, kept: KeptFolder, but: Collection[str], within_s: float
) -> Sequence[Promise]:
    share = 1.0 if site.fit is None else site.fit.gpus_share
    name = f"past-promises-{share:g}.json"  # with another share of the GPUs other things would have been said
    whole = with_unfinished(site.past, queue.jobs)
    oldest_s = queue.now_s - min(KEEP_S, FIT_DAYS * DAY_S)
    told = [one for one in read_promises(kept, queue, whole, name) if oldest_s <= one.asked_s <= queue.now_s]
    asked, until_s = {one.job_id for one in told}, time.monotonic() + within_s
    made: list[Promise] = []
    for row in rows_alike(whole, job, but, MOST):
        if made and time.monotonic() > until_s:
            break
        if str(whole.jobs.job_id[row]) not in asked:
            made.append(promise_then(row, whole, queue, site.settings, share, np.random.default_rng(SEED)))
    if made:
        write_promises(kept, sorted([*told, *made], key=lambda one: one.asked_s), name)
    return [*told, *made]


def _outcome(promise: Promise, job: QueuedJob, site: AnswerBasis, now_s: float) -> ForecastOutcome:
    """What would be said today, as it is of the successor, against the wait that came."""
    raw = WaitForecast(promise.asked_s, promise.raw_s)
    said = site.own.corrected(raw if site.fit is None else site.fit.corrected(raw), job)
    wait_s = (now_s if promise.start_s is None else promise.start_s) - promise.asked_s
    in_seconds = np.round(Forecast.of_quantiles(LEVELS, said.wait_s).waits_s)
    return ForecastOutcome(Forecast.of_samples(in_seconds), max(0.0, round(wait_s)), promise.start_s is not None)
