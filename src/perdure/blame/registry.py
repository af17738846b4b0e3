"""The registry of solvers: a name to a solver at its defaults."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.blame.deepview import Deepview
from perdure.blame.flock import Flock
from perdure.blame.greedy import Greedy
from perdure.blame.netbouncer import NetBouncer
from perdure.blame.protocol import Solver
from perdure.blame.score import Score
from perdure.blame.verdict import Suspect
from perdure.blame.votes import Votes
from perdure.blame.window import Window
from perdure.errors import ConfigError

DEFAULT = "greedy"
_ALL: tuple[Solver, ...] = (Greedy(), Deepview(), NetBouncer(), Flock(), Votes(), Score())
SOLVERS: Mapping[str, Solver] = {solver.name: solver for solver in _ALL}


def localise(window: Window, solver: str = DEFAULT) -> tuple[Suspect, ...]:
    """The components of a window to blame, the surest first; none where nobody is.

    The solver runs with its defaults; for others make it yourself: ``Greedy(surcharge=8.0).solve(window)``. Raises
    `ConfigError` for a name that is not in `SOLVERS`.
    """
    if solver not in SOLVERS:
        raise ConfigError("solver", f"{solver!r} is not known", f"Use one of: {', '.join(SOLVERS)}")
    return SOLVERS[solver].solve(window)
