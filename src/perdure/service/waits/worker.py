"""The process that makes forecasts and fits: an order on its standard input, the answer on its standard output.

A process of its own, so that neither looks nor pages wait for a simulation, and so that its time can be bounded.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from perdure.errors import PerdureError
from perdure.scheduling.slurm.conf import settings_of
from perdure.service.waits.order import ForecastOrder, Forecasts
from perdure.traces.read import read
from perdure.waits.answer import AnswerBasis, answers
from perdure.waits.board import board
from perdure.waits.hindcast import Fit, fit
from perdure.waits.past import Past

SEED = 0  # the same queue gives the same answer
NICENESS = 10
FIT_NICENESS = 19
FIT_CPU_S = 300  # processor time of a fit: no more, however long the history is


def forecasts(order: ForecastOrder) -> Forecasts:
    """Carry out an order."""
    began_s = time.monotonic()
    queue = order.look.queue
    past, remarks = _past(order)
    site = AnswerBasis(
        settings_of(order.look.config)[0], past, order.fit, remarks, is_watched=True, limits=order.limits, own=order.own
    )
    rng, zone = np.random.default_rng(SEED), datetime.now(UTC).astimezone().tzinfo or UTC
    told = tuple(answers(queue, site, rng, zone, order.most))
    rows = tuple(board(queue, site, rng))
    waiting = sum(job.is_waiting or job.is_held for job in queue.jobs)
    return Forecasts(queue.now_s, told, rows, waiting, remarks, time.monotonic() - began_s)


def fitted(order: ForecastOrder) -> Fit:
    """Hold answers about the past of an order against what came."""
    settings, (past, _) = settings_of(order.look.config)[0], _past(order)
    return fit(order.look.queue, settings, past, np.random.default_rng(SEED))


def _past(order: ForecastOrder) -> tuple[Past, tuple[str, ...]]:
    if not order.past:
        return Past(), order.remarks
    try:
        table = read(Path(order.past), order.past_form, skip_bad=True).table
    except PerdureError as err:
        return Past(), (*order.remarks, f"no history: {err.args[1]}")
    return Past.of(table, order.look.queue.now_s), order.remarks


def end_with(parent: int) -> None:
    """End this process once the service is gone: nobody reads the answer then."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    """Answer one order."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    fits = sys.argv[1:] == ["fit"]
    os.nice(FIT_NICENESS if fits else NICENESS)
    if fits:
        resource.setrlimit(resource.RLIMIT_CPU, (FIT_CPU_S, FIT_CPU_S + 1))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ForecastOrder)
    sys.stdout.buffer.write(msgspec.json.encode(fitted(order) if fits else forecasts(order)))


if __name__ == "__main__":
    main()
