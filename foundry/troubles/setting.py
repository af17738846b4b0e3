"""What a trouble is: a context manager over `(directory, present)`.

It yields the environment for the program, and a callable that disturbs the program while it runs. With `present`
False the trouble is gone and the world is well.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

Disturb = Callable[["subprocess.Popen[bytes]"], None]
Setting = tuple[dict[str, str], Disturb]
Trouble = Callable[[Path, bool], AbstractContextManager[Setting]]


def calm(_process: subprocess.Popen[bytes]) -> None:
    """Leave it alone."""


@contextmanager
def none(_directory: Path, _present: bool) -> Iterator[Setting]:
    yield {}, calm


@contextmanager
def told(_directory: Path, present: bool) -> Iterator[Setting]:
    """The entry's own script plays the world around its program, and reads here how that world is."""
    yield {"WORLD": "troubled" if present else "well"}, calm
