"""A live Slurm as it was asked last: the queue at most once a minute, accounting at most once an hour.

Accounting of less than a day is asked more often, as it grows, but no more than once a minute.
"""

from __future__ import annotations

import hashlib
import os
import time

import msgspec

from perdure.backends.slurm.limits import enforces_limits, limits_or_remark
from perdure.backends.slurm.past_jobs import keeps_past_jobs, read_past_jobs, remarks_on
from perdure.backends.slurm.queue import read_queue
from perdure.backends.slurm.tools import Tools
from perdure.cli.kept import KeptFolder
from perdure.cli.kept_promises import keep_promise, read_promises
from perdure.cli.kept_table import read_table
from perdure.cli.table import age
from perdure.errors import PerdureError
from perdure.scheduling.slurm.conf import settings_of
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.waits.answer import AnswerBasis, WaitAnswer
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import FIT_DAYS, Fit
from perdure.waits.own_errors import own_errors, promise_of
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueueLook

QUEUE_S, HISTORY_S = 60.0, 3600.0  # how old what is kept may be
HISTORY_DAYS = 28
FRESH_PARTS = 20  # accounting is asked again once the past has grown by one of these
CLOCKS_S = 60.0  # by more than that they may not differ without a word
_QUEUE, _LIMITS, _FIT = "queue.json", "limits.json", "fit.json"
_HISTORY, _COLUMNS = "history.txt", "history.npz"


def live_queue(history_s: float = HISTORY_S) -> tuple[Queue, AnswerBasis]:
    """The queue, and what else answers rest on; accounting is asked again where what is kept is older than `history_s`.

    Raises `ConfigError` or `ClusterBusy` where Slurm does not answer.
    """
    tools = Tools()
    tools.check()
    tools.find("scontrol")
    kept = kept_of_slurm()
    look, age_s = _look(kept, tools)
    settings, _ = settings_of(look.config)
    past, remarks = _past(kept, tools, look, history_s)
    limits = _limits(kept, tools, look)
    clock = _clocks(look.queue.now_s + age_s - time.time())
    fit = _kept_fit(kept)
    waiting = frozenset(job.job_id for job in look.queue.jobs if job.is_waiting)
    own = own_errors(read_promises(kept, look.queue, past), waiting, look.queue.now_s, fit)
    return look.queue, AnswerBasis(settings, past, fit, (*clock, *remarks), limits=limits, own=own)


def keep_answer(found: WaitAnswer, queue: Queue, past: Past) -> None:
    """Keep the answer to correct later ones by what comes of it; a waiting array task has no id of its own yet."""
    if found.forecast is not None and found.job.is_waiting and found.job.job_id and found.job.tasks == 1:
        keep_promise(kept_of_slurm(), promise_of(found.job, found.forecast), queue, past)


def keep_fit(made: Fit) -> None:
    """Keep what was learned, to correct later answers by it."""
    kept_of_slurm().write(_FIT, msgspec.json.encode(made))


def kept_of_slurm() -> KeptFolder:
    """What is kept of the Slurm that this environment names."""
    return KeptFolder.below("when", hashlib.sha256(os.environ.get("SLURM_CONF", "").encode()).hexdigest()[:16])


def _kept_fit(kept: KeptFolder) -> Fit | None:
    found = kept.read(_FIT)
    if found is None or found[1] > FIT_DAYS * DAY_S:
        return None
    try:
        made = msgspec.json.decode(found[0], type=Fit)
    except msgspec.MsgspecError:  # another version kept it
        return None
    return made if len(made.shifts) == len(LEVELS) else None


def _look(kept: KeptFolder, tools: Tools) -> tuple[QueueLook, float]:
    """The queue, and how many seconds ago it was asked for."""

    def ask() -> bytes:
        return msgspec.json.encode(read_queue(tools))

    text, age_s = kept.fresh(_QUEUE, QUEUE_S, ask)
    try:
        return msgspec.json.decode(text, type=QueueLook), age_s
    except msgspec.MsgspecError:  # another version kept it
        return msgspec.json.decode(ask(), type=QueueLook), 0.0


def _limits(kept: KeptFolder, tools: Tools, look: QueueLook) -> SiteLimits:
    """The limits of QOS and accounts, with a remark where they cannot be had."""
    if not enforces_limits(look.config):
        return SiteLimits()

    def ask() -> bytes:
        return msgspec.json.encode(limits_or_remark(tools, look.config))

    text, _ = kept.fresh(_LIMITS, HISTORY_S, ask)
    try:
        return msgspec.json.decode(text, type=SiteLimits)
    except msgspec.MsgspecError:  # another version kept it
        return msgspec.json.decode(ask(), type=SiteLimits)


def _clocks(ahead_s: float) -> tuple[str, ...]:
    """What is to be said where slurmctld's clock and that of this machine differ."""
    if abs(ahead_s) <= CLOCKS_S:
        return ()
    way = "ahead of" if ahead_s > 0 else "behind"
    return (f"the clock of slurmctld is {age(abs(ahead_s))} {way} this machine's: times follow slurmctld's",)


def _past(kept: KeptFolder, tools: Tools, look: QueueLook, most_s: float) -> tuple[Past, tuple[str, ...]]:
    """The jobs of the last weeks, and what is to be said where they cannot be had."""
    if not keeps_past_jobs(look.config):
        return Past(), remarks_on(look.config)
    try:
        past = _read_past(kept, tools, look.queue.now_s, most_s)
        if past is not None and look.queue.now_s - past.until_s > max(QUEUE_S, past.span_s / FRESH_PARTS):
            past = _read_past(kept, tools, look.queue.now_s, QUEUE_S)
    except PerdureError as err:
        return Past(), (f"no history: {err.args[1]}",)
    if past is None:  # no folder, or a disk that is full
        return Past(), ("nothing can be kept in this user's cache folder, so no history is read",)
    return past, remarks_on(look.config)


def _read_past(kept: KeptFolder, tools: Tools, now_s: float, most_s: float) -> Past | None:
    """What accounting told no longer than `most_s` ago; None where nothing can be kept."""
    _, age_s = kept.fresh(_HISTORY, most_s, lambda: read_past_jobs(tools, now_s - HISTORY_DAYS * DAY_S))
    jobs = read_table(kept, _HISTORY, _COLUMNS)
    return None if jobs is None else Past.of(jobs, now_s - age_s)
