"""The event loop, compiled: one text for all policies, which differ by four kernels.

The plain loop and the plain policy define. A compiled policy only repeats their schedule, to the tick, where replays of
a hundred thousand jobs would take too long without it. It is a module that `registry` names, and has

- a *part*: a named tuple class of arrays with all that the policy remembers besides the `State`;
- ``prepare(policy, jobs, total_gpus)``: the part before the first event, or None for a variant that is not compiled;
- four kernels, given to `kernels`, with the names and the duties of `perdure.scheduling.protocol.Ranking`:

  - ``arrive(state, part, row)``, right after a job came to wait;
  - ``leave(state, part, row)``, right before the attempt of a running job ends: it still holds its GPUs;
  - ``give(state, part)``, once after the events of an instant: the whole pass, which starts and preempts jobs by
    `state.start` and `state.preempt` alone;
  - ``next_change(state, part)``, the tick at which the order changes of itself;

- ``advance``, an entry that calls `run`: numba keeps machine code by the module of the entry.

``tests/simulation/test_compiled.py`` compares the schedules of every policy in the registry with those of the plain
loop. With ``NUMBA_DISABLE_JIT=1`` all of it runs as Python, to be stepped through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from numba import extending

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import OPTIONS, kernel
from perdure.simulation.compiled.state import (
    ASKS,
    DONE,
    PAUSED,
    apply_answers,
    begin_instant,
    due_arrival,
    due_end,
    end_of_events,
    finish,
    next_event,
)

Kernel = Callable[..., Any]


@kernel
def never(state, part):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """`NEVER`: the `next_change` of an order that no passing of time changes."""
    return NEVER


class Kernels(NamedTuple):
    """What a policy does, besides its part: `arrive`, `leave`, `give` and `next_change`; the module says when each is
    called.
    """

    arrive: Kernel
    leave: Kernel
    give: Kernel
    next_change: Kernel = never


_OF_PART: dict[type, Kernels] = {}


def kernels(part: type, arrive: Kernel, leave: Kernel, give: Kernel, next_change: Kernel = never) -> None:
    """Register the kernels of a policy: `run` calls them with parts of this class. Once a class, before anything is
    compiled.
    """
    _OF_PART[part] = Kernels(arrive, leave, give, next_change)


def _of_part(name: str) -> Kernel:
    """The kernel of that name which belongs to the class of its second argument.

    numba chooses it when it compiles a call, from the type alone; a replay pays nothing for the choice. (numba cannot
    keep code on disk that was given functions as values: so they are found by the type of a value instead.)
    """

    def call(state: Any, part: Any, *row: Any) -> Any:
        return getattr(_OF_PART[type(part)], name)(state, part, *row)

    def choose(state, part, *row):  # type: ignore[no-untyped-def]  # noqa: ARG001
        chosen = getattr(_OF_PART[part.instance_class], name)
        return lambda state, part, *row: chosen(state, part, *row)

    cast("Any", extending.overload)(call, jit_options=OPTIONS)(choose)
    return call


_arrive, _leave, _give, _next_change = map(_of_part, Kernels._fields)


@kernel
def run(state, part, asks, resumed):  # type: ignore[no-untyped-def]
    """Advance until nothing is left to happen (`DONE`), or attempts failed about which somebody must be asked (`ASKS`).

    Or up to where `state.tally` says that it is to stop (`PAUSED`); it can go on from there.

    At one instant attempts end first, then jobs come, then GPUs are given out once, as in `perdure.simulation.plain`.
    `asks`: whether to ask at all. `resumed`: the answers are in `state.questions`; it goes on behind the ends of the
    same instant. The state is whole whenever it returns.
    """
    while True:
        if not resumed:
            now = min(next_event(state), _next_change(state, part))
            if now == NEVER:
                return DONE
            if now >= state.tally[0].until:
                return PAUSED
            begin_instant(state, now)
            row = due_end(state)
            while row >= 0:
                _leave(state, part, row)
                finish(state, row, asks)
                row = due_end(state)
            if state.questions.tally[0].many:
                return ASKS
        else:
            apply_answers(state)
        resumed = False
        row = due_arrival(state)
        while row >= 0:
            _arrive(state, part, row)
            row = due_arrival(state)
        end_of_events(state)
        _give(state, part)
        if state.tally[0].watched >= 0 and state.job[state.tally[0].watched].start >= 0:
            return PAUSED
