"""What planners share: from a price of overlap to a level of the wait, and from a wait to a decision.

Submitting so that the successor starts at the end at the latest with a chance of q costs, at the margin, 1 - q of
interruption against q times the price of overlap. They are equal at ``q = 1 / (1 + price)``, the critical fractile of
the newsvendor problem (Arrow, Harris, Marschak, "Optimal inventory policy", Econometrica 19, 1951).
"""

from __future__ import annotations

from perdure.succession.protocol import Decision, View

INTERVAL_S = 600.0  # between decisions, unless the end comes first


def level_of(view: View) -> float:
    """The chance with which the successor is to start by the end of the link."""
    if view.max_interruption is not None:
        return 1.0 - min(1.0, max(0.0, view.max_interruption))
    return 1.0 / (1.0 + max(0.0, view.overlap_cost))


def by_wait(view: View, wait_s: float, what: str) -> Decision:
    """Submit once a wait of `wait_s` reaches to the end of the link; `what` says which wait that is."""
    if view.left <= 0:
        return at_the_end(view)
    left, wait = in_words(view.left), in_words(wait_s)
    if wait_s >= view.left:
        return Decision(True, view.now, f"{what} is {wait}, and the link runs for {left} more")
    return later(view, f"{what} is {wait}, shorter than the {left} that the link still runs")


def in_words(seconds: float) -> str:
    """A stretch of time in a reason, in a unit that does not make it nothing.

    >>> in_words(5400), in_words(90), in_words(12)
    ('1.5 h', '1.5 min', '12 s')
    """
    if abs(seconds) < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if abs(seconds) < 3600 else f"{seconds / 3600:.1f} h"


def later(view: View, reason: str) -> Decision:
    """Ask again after the interval, at the end of the link at the latest."""
    return Decision(False, min(view.link_ends, view.now + INTERVAL_S), reason)


def at_the_end(view: View) -> Decision:
    return Decision(True, view.now, "the link has reached the end of its walltime")


def until_the_end(view: View, why: str) -> Decision:
    """Submit at the end of the link, because no better time is known."""
    return at_the_end(view) if view.left <= 0 else Decision(False, view.link_ends, why)
