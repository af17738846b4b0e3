"""Answers of ``perdure when`` as a person reads them, or as JSON."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import numpy as np
import re2

from perdure.backends.slurm.request import environment_options, request_of
from perdure.cli.live_queue import QUEUE_S, keep_answer, live_queue
from perdure.cli.output import paint, print_json, print_line, print_table
from perdure.cli.progress import tell_of_compiling_queue
from perdure.cli.table import age, text, word
from perdure.cli.table import clock as clock_at
from perdure.cli.text import plain
from perdure.errors import InputError, NotFound
from perdure.installation import user_name
from perdure.waits.alternatives import Sooner
from perdure.waits.answer import AnswerBasis, WaitAnswer, answer
from perdure.waits.board import BoardRow, board
from perdure.waits.forecast import WaitForecast
from perdure.waits.holds import not_told
from perdure.waits.limits import with_defaults
from perdure.waits.past import DAY_S
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.rollout import HORIZON_S

ANSWERED, NEVER = 0, 1
WATCH_S = 60.0
SEED = 0  # the same queue gives the same answer
_JOB_ID = re2.compile(r"\d{1,10}(?:_\d{1,10}|_\[[\d,\-%:]{1,200}\])?(?:\+\d{1,5})?")
_AHEAD = re2.compile(r"\+(\d{1,6}(?:\.\d{1,3})?)([mhd])")
_HOUR = re2.compile(r"(\d{1,2}):(\d\d)")
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": DAY_S}
BOARD = (
    word("PARTITION"), word("STATE"), word("FREE GPUS"), word("WAIT"), word("FOR GPUS", leave=2),
    word("WAIT LAST DAY", leave=1), word("NEXT JOB"), word("4 OF 5 WITHIN", leave=3),
)  # fmt: skip
SOONER = (text("INSTEAD"), word("STARTS"), word("SOONER BY"), word("OPTION OF SBATCH", leave=1))


@dataclass(frozen=True, slots=True)
class WhenOptions:
    """What was asked, in the user's words."""

    what: str | None  # a job, a script, or None for the board
    by: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)  # options of sbatch
    watch: bool = False


def ask(question: WhenOptions, as_json: bool, *, wide: bool) -> int:
    """Answer, once or until the job starts. Raises `InputError`, `NotFound`, and what reading Slurm raises."""
    if question.what is None and (question.given or question.by):
        option = next(iter(question.given), "by")
        what = "it is about one job, and no job is named"
        raise InputError(f"--{option}", what, "Name a job's id, or a batch script")
    while True:
        queue, site = live_queue()
        if question.what is None:
            tell_of_compiling_queue(len(queue.jobs))
            _print_board(board(queue, site, _rng()), queue, site, as_json, wide=wide)
            code, waits = ANSWERED, True
        else:
            code, waits = _tell_of_job(question, queue, site, as_json, wide=wide)
        if not (question.watch and waits):
            return code
        gc.collect()
        time.sleep(WATCH_S)


def _tell_of_job(
    question: WhenOptions, queue: Queue, site: AnswerBasis, as_json: bool, *, wide: bool
) -> tuple[int, bool]:
    """The exit code, and whether the job still waits."""
    job, remarks = _asked(question, queue, site)
    site = replace(site, remarks=(*remarks, *site.remarks))
    by_s = None if question.by is None else instant_of(question.by, queue.now_s)
    if job.is_waiting:
        tell_of_compiling_queue(len(queue.jobs))
    found = answer(job, queue, site, _rng(), _zone())
    keep_answer(found, queue, site.past)
    chance = None if by_s is None or found.forecast is None else found.forecast.chance_within(by_s - queue.now_s)
    if as_json:
        further = {} if by_s is None else {"by_s": by_s, "chance_by": chance}
        print_json("when", 1, now_s=queue.now_s, **found.to_json(), **further)
    else:
        _print_answer(found, queue.now_s, by_s, chance, wide=wide)
    return (ANSWERED if found.hold.can_start else NEVER), job.is_waiting


def forecast_of(gpus: int) -> WaitForecast:
    """How long a job of so many GPUs would wait, submitted now to the default partition.

    Raises `InputError` where it would never start, and what reading Slurm raises.
    """
    queue, site = live_queue()
    request = request_of(b"#!/bin/sh\n", [*environment_options(os.environ), f"--gpus={gpus}"], f"{gpus} GPUs")
    job = request.as_job(queue, user_name(), _usual_priority(queue, user_name()))
    tell_of_compiling_queue(len(queue.jobs))
    found = answer(with_defaults(job, site.limits), queue, site, _rng(), _zone())
    if found.forecast is None:
        raise InputError(f"{gpus} GPUs", "such a job would not start as the cluster is", "Say when: 'in 5 hours'")
    return found.forecast


def _asked(question: WhenOptions, queue: Queue, site: AnswerBasis) -> tuple[QueuedJob, tuple[str, ...]]:
    """The job of an id, or the one that a script would be, with remarks. Raises `NotFound`, `InputError`."""
    what = question.what or ""
    if _JOB_ID.fullmatch(what) and not os.path.exists(what):
        if question.given:
            option = next(iter(question.given))
            raise InputError(f"--{option}", "a job in the queue asks for what it asks for", "Name a script instead")
        found = queue.job(what)
        if found is None:
            raise _not_there(what, queue, site)
        return found, ()
    try:
        script = Path(what).read_bytes()
    except (OSError, ValueError) as err:
        why = getattr(err, "strerror", None) or str(err)
        raise InputError(plain(what, 200), why, "Name a job's id, or a batch script") from err
    options = [*environment_options(os.environ), *(f"--{name}={value}" for name, value in question.given.items())]
    request = request_of(script, options, plain(what))
    job = request.as_job(queue, user_name(), _usual_priority(queue, user_name()))
    passed_over = ", ".join(f"--{name}" for name in request.passed_over)
    notes = (f"without regard to {passed_over} of the script: it may take longer",) if passed_over else ()
    return with_defaults(job, site.limits), notes


def _not_there(what: str, queue: Queue, site: AnswerBasis) -> NotFound:
    """A job that has ended, as far as accounting shows, or is not known."""
    past = site.past.jobs
    ended_s = past.end_s[(past.job_id == what) & np.isfinite(past.end_s)]
    if len(ended_s):
        when = _about(float(ended_s.max()), queue.now_s)
        return NotFound(f"job {what}", f"it ended at {when}", f"See how it ended: perdure why {what}")
    if 1 <= (age_s := time.time() - queue.now_s) <= QUEUE_S:  # what was submitted since cannot be there
        gone = f"it was not in the queue {age_s:.0f} s ago, when Slurm was last asked"
        fix = f"Ask again in {QUEUE_S - age_s:.0f} s if it is newer; for a job that has ended, use perdure why"
        return NotFound(f"job {what}", gone, fix)
    fix = "Look for it with squeue; for a job that has ended, use perdure why"
    return NotFound(f"job {what}", "it is not in the queue: it has ended, or never was", fix)


def _usual_priority(queue: Queue, user: str) -> int:
    """What a job that is submitted now may begin with: the lowest of this user's waiting jobs, else of all."""
    own = [job.priority for job in queue.waiting() if job.user == user]
    return min(own or [job.priority for job in queue.waiting()], default=1)


def instant_of(words: str, now_s: float) -> float:
    """Seconds since the epoch of ``18:00`` (the next one), ``2026-12-01T08:00`` or ``+3h``. Raises `InputError`."""
    if found := _AHEAD.fullmatch(words):
        return now_s + float(found[1]) * _UNITS_S[found[2]]
    now = datetime.fromtimestamp(now_s).astimezone()
    if (found := _HOUR.fullmatch(words)) and int(found[1]) < 24 and int(found[2]) < 60:
        then = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return (then if then > now else then + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(words).astimezone().timestamp()
    except (ValueError, OverflowError) as err:
        fix = "Write it like 18:00, 2026-12-01T08:00 or +3h"
        raise InputError(f"--by {plain(words, 40)!r}", "it is not a time", fix) from err


# ---------------------------------------------------------------- one job


def _print_answer(found: WaitAnswer, now_s: float, by_s: float | None, chance: float | None, *, wide: bool) -> None:
    for label, said in _card(found, now_s, by_s, chance):
        print_line(_labelled(label, said) if label else said)
    if found.sooner:
        print_line("")
        rows = (
            (each.alternative.change, _about(each.start_s, now_s), _gain(each, now_s), each.alternative.options)
            for each in found.sooner
        )
        print_table(SOONER, rows, wide=wide)
    for remark in found.forecast.remarks if found.forecast else ():
        print_line(_labelled("NOTE", remark))


def _gain(found: Sooner, now_s: float) -> str:
    return age(found.gain_s) if np.isfinite(found.gain_s) else f"over {age(now_s + HORIZON_S - found.start_s)}"


def _card(found: WaitAnswer, now_s: float, by_s: float | None, chance: float | None) -> Iterator[tuple[str, str]]:
    """Labels, each with what is said next to it."""
    job, forecast = found.job, found.forecast
    yield "", _headline(job, now_s)
    if forecast is not None:
        yield "STARTS", _starts(forecast, now_s)
    elif job.is_running:
        yield "STARTS", f"it has: it runs since {_about(job.start_s or now_s, now_s)}"
    else:
        yield "STARTS", not_told(found.hold)
    if by_s is not None and chance is not None:
        yield "CHANCE", f"{chance:.0%} by {_about(by_s, now_s)}"
    if not job.is_running:
        yield "HELD BY", found.hold.says
    if found.planned_s is not None:
        yield (
            "SLURM",
            f"plans {_about(found.planned_s, now_s)}, as if each job took its whole limit and nobody else came",
        )


def _labelled(label: str, said: str) -> str:
    return paint(f"{label:<9}", "bold") + said


def _headline(job: QueuedJob, now_s: float) -> str:
    name = f"job {job.job_id}" if job.job_id else "this script, submitted now"
    gpus = f"{job.gpus} GPU{'s' if job.gpus != 1 else ''}" if job.gpus else f"{job.cpus} CPUs"
    limit = "no limit" if job.walltime_s is None else f"a limit of {age(job.walltime_s)}"
    nodes = f" on {job.nodes} nodes" if job.nodes > 1 else ""
    since = f", in the queue for {age(now_s - job.submit_s)}" if job.job_id and not job.is_running else ""
    return f"{name}: {gpus}{nodes}, {limit}, in {' or '.join(job.partitions)}{since}"


def _starts(forecast: WaitForecast, now_s: float) -> str:
    low_s, high_s = forecast.interval_s
    if forecast.is_at_once:
        return "at once"
    if forecast.median_s >= HORIZON_S:
        return f"later than in {age(HORIZON_S)}: that far nothing is simulated"
    late = f"{_about(now_s + high_s, now_s)}" if high_s < HORIZON_S else f"later than in {age(HORIZON_S)}"
    return (
        f"about {_about(now_s + forecast.median_s, now_s)}, in {age(forecast.median_s)}; "
        f"four times of five between {_about(now_s + low_s, now_s)} and {late}"
    )


def _about(seconds: float, now_s: float) -> str:
    return clock_at(seconds, now_s).short if np.isfinite(seconds) else "never"


# ---------------------------------------------------------------- the board


def _print_board(rows: Sequence[BoardRow], queue: Queue, site: AnswerBasis, as_json: bool, *, wide: bool) -> None:
    if as_json:
        told = [row.to_json() for row in rows]
        print_json("when-board", 1, now_s=queue.now_s, partitions=told, remarks=list(site.remarks))
        return
    print_table(BOARD, (_cells(row) for row in rows), wide=wide)
    for remark in site.remarks:
        print_line(_labelled("NOTE", remark))


def _cells(row: BoardRow) -> tuple[object, ...]:
    return (
        row.partition,
        "up" if row.is_up else "down",
        f"{row.gpus_free} of {row.gpus}" if row.gpus else "none",
        row.waiting,
        row.waiting_gpus,
        "" if row.wait_last_day_s is None else f"{age(row.wait_last_day_s)} ({row.started_last_day})",
        "" if row.next is None else age(row.next.median_s),
        "" if row.next is None else age(row.next.interval_s[1]),
    )


def _zone() -> tzinfo:
    return datetime.now(UTC).astimezone().tzinfo or UTC


def _rng() -> np.random.Generator:
    return np.random.default_rng(SEED)
