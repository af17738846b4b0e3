"""The questions of the compiled loop to a retry policy; see `perdure.simulation.retry_hook`.

A retry policy is Python. So the loop returns when attempts failed at an instant, with all questions of that instant,
and goes on with the answers (`loop.run`): the policy is asked once an instant, not in the middle of the loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.gpu_places import COUNT
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records

OVER = -1  # the answer for a job that does not come back


class Questions(NamedTuple):
    """About attempts that failed at one instant. No more can be than there are GPUs.

    They are in the order in which the attempts ended, which is that in which the plain loop asks.
    """

    about: Records  # see `no_questions`
    nodes: NDArray[np.int32]  # of all of them, one after another
    tally: Records  # one record


def no_questions(total_gpus: int) -> Questions:
    """Room for the questions of one instant: as many attempts can end at it, on as many nodes, as there are GPUs."""
    about = records(
        total_gpus,
        row=LONG,
        number=LONG,
        record=LONG,  # that says how it ended
        ran=LONG,
        bad=LONG,  # its node whose fault ended it; -1 for none
        until=LONG,  # its nodes are those of `nodes` from the question before up to here
        back=LONG,  # the answer: the tick at which the job comes back, or `OVER`
    )
    return Questions(about, np.empty(total_gpus, np.int32), records(1, many=LONG, nodes=LONG))


@kernel
def note_nodes(questions, places, row):  # type: ignore[no-untyped-def]
    """Write down which nodes a job holds, behind those of the questions there are; where they end.

    They count only once a question is put (`ask`): else the next job writes over them.
    """
    end = questions.tally[0].nodes
    if places.kind != COUNT:
        share = np.int64(places.holders[row].first)
        while share:
            questions.nodes[end] = places.shares[share].node
            end += 1
            share = np.int64(places.shares[share].after)
    return end


@kernel
def ask(questions, row, number, record, ran, bad, until):  # type: ignore[no-untyped-def]
    """Put a question about a job whose nodes were noted last, up to `until`.

    Until it is answered the job does not come back.
    """
    about = questions.about[questions.tally[0].many]
    about.row = row
    about.number = number
    about.record = record
    about.ran = ran
    about.bad = bad
    about.back = OVER
    about.until = until
    questions.tally[0].many += 1
    questions.tally[0].nodes = until
