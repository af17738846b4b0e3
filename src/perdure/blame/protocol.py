"""What a solver is."""

from __future__ import annotations

from typing import Protocol

from perdure.blame.verdict import Suspect
from perdure.blame.window import Window


class Solver(Protocol):
    """Names the components of a window that are to blame; a pure function of the window and its own settings.

    Paths without units are no evidence. A solver changes nothing in the window and draws no random numbers.
    """

    @property
    def name(self) -> str:
        """The key in the registry, and the value of ``--solver``."""

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects, the surest first; none where nobody is to blame. Of equivalent components only one is named.

        May raise `InputError` for a window that is beyond the method.
        """
