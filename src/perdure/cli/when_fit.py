"""``perdure when fit``: answers about the past, held against what came."""

from __future__ import annotations

import numpy as np

from perdure.cli.live_queue import QUEUE_S, keep_fit, live_queue
from perdure.cli.output import print_json, print_line
from perdure.cli.progress import progress
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import ENOUGH, Fit, fit

LEARNT, TOO_LITTLE = 0, 1


def fit_site(instants: int, as_json: bool) -> int:
    """Learn, keep what was learned, and show it. Raises what reading Slurm raises."""
    queue, site = live_queue(history_s=QUEUE_S)  # it learns from what has ended since, too
    with progress(what="asking about the past"):
        made = fit(queue, site.settings, site.past, np.random.default_rng(0), instants)
    if made.is_known:
        keep_fit(made)
    if as_json:
        shifts = dict(zip(map(str, LEVELS), made.shifts, strict=True))
        told = {"answers": made.answers, "gpus_share": made.gpus_share, "shifts_log10": shifts}
        print_json("when-fit", 1, **told, median_error_log10=made.median_error, covered=made.covered)
    else:
        print_line(_told(made))
    return LEARNT if made.is_known else TOO_LITTLE


def _told(made: Fit) -> str:
    if not made.is_known:
        return f"{made.answers} jobs of the past could be asked about, {ENOUGH} are needed: answers stay as they are."
    factor = 10**made.median_error
    return (
        f"{made.answers} answers about the past: half of the medians were within a factor of {factor:.1f} of the wait "
        f"that came, and {made.covered:.0%} of the starts lay in the intervals, which promise 80%. Answers are "
        f"corrected by that from now on, and reckon with {made.gpus_share:.0%} of the GPUs in service."
    )
