"""What a solver is."""

from __future__ import annotations

from typing import Protocol

from perdure.blame.verdict import Suspect
from perdure.blame.window import Window


class Solver(Protocol):
    """Names the components of a window that are to blame; a pure function of the window and its own settings."""

    @property
    def name(self) -> str:
        """As in the registry."""

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects, the surest first; none where nobody is to blame. Of components alike only one is named."""
