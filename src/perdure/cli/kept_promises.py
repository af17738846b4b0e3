"""What was said of jobs' waits, kept in the user's own cache: it tells how far later answers may be off."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import structs

from perdure.cli.kept import KeptFolder
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue

MOST = 500  # answers that are kept, the newest
KEEP_S = 30 * DAY_S
EVERY_S = 600.0  # of one job an answer is kept so often, with --watch too
EARLY_S = 1.0  # a start instant is in whole seconds
ANSWERED = "promises.json"  # by ``perdure when JOB``


def read_promises(kept: KeptFolder, queue: Queue, past: Past, name: str = ANSWERED) -> list[Promise]:
    """The stored promises, oldest first, each with its job's start where that is known by now."""
    started = _starts(queue, past)
    return [_with_start(one, started) for one in _read(kept, name)]


def keep_promise(kept: KeptFolder, promise: Promise, queue: Queue, past: Past) -> None:
    """Keep one more, and the starts that came of the others; of two commands at once one may lose its own."""
    there = [one for one in read_promises(kept, queue, past) if 0 <= queue.now_s - one.asked_s < KEEP_S]
    if all(one.job_id != promise.job_id or promise.asked_s - one.asked_s >= EVERY_S for one in there):
        write_promises(kept, [*there, promise])


def write_promises(kept: KeptFolder, promises: Sequence[Promise], name: str = ANSWERED) -> None:
    """Keep these instead of those that are there, the last ones of them."""
    kept.write(name, msgspec.json.encode(promises[-MOST:]))


def _read(kept: KeptFolder, name: str) -> list[Promise]:
    found = kept.read(name)
    try:
        told = [] if found is None else msgspec.json.decode(found[0], type=list[Promise])
    except msgspec.MsgspecError:  # another version kept it
        return []
    return [one for one in told if len(one.wait_s) == len(one.raw_s) == len(LEVELS)]


def _with_start(promise: Promise, started: dict[str, float]) -> Promise:
    start_s = started.get(promise.job_id)
    if promise.start_s is not None or start_s is None or start_s < promise.asked_s - EARLY_S:
        return promise
    return structs.replace(promise, start_s=start_s)


def _starts(queue: Queue, past: Past) -> dict[str, float]:
    jobs = past.jobs
    known = np.flatnonzero(np.isfinite(jobs.start_s))
    ended = dict(zip(jobs.job_id[known].tolist(), jobs.start_s[known].tolist(), strict=True))
    return ended | {job.job_id: job.start_s for job in queue.running() if job.start_s is not None}
