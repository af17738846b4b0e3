"""The process that makes forecasts: an order on its standard input, the answer on its standard output.

A process of its own, so that neither looks nor pages wait for a simulation, and so that its time can be bounded.
"""

from __future__ import annotations

import os
import sys
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
from perdure.waits.past import Past

SEED = 0  # the same queue gives the same answer
NICENESS = 10


def forecasts(order: ForecastOrder) -> Forecasts:
    """Carry out an order."""
    began_s = time.monotonic()
    queue = order.look.queue
    past, remarks = _past(order)
    site = AnswerBasis(settings_of(order.look.config)[0], past, None, remarks, is_watched=True)
    rng, zone = np.random.default_rng(SEED), datetime.now(UTC).astimezone().tzinfo or UTC
    told = tuple(answers(queue, site, rng, zone, order.most))
    rows = tuple(board(queue, site, rng))
    waiting = sum(job.is_waiting or job.is_held for job in queue.jobs)
    return Forecasts(queue.now_s, told, rows, waiting, remarks, time.monotonic() - began_s)


def _past(order: ForecastOrder) -> tuple[Past, tuple[str, ...]]:
    if not order.past:
        return Past(), order.remarks
    try:
        table = read(Path(order.past), order.past_form, skip_bad=True).table
    except PerdureError as err:
        return Past(), (*order.remarks, f"no history: {err.args[1]}")
    return Past.of(table, order.look.queue.now_s), order.remarks


def main() -> None:
    """Answer one order."""
    os.nice(NICENESS)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ForecastOrder)
    sys.stdout.buffer.write(msgspec.json.encode(forecasts(order)))


if __name__ == "__main__":
    main()
