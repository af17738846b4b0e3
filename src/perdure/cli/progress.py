"""How far a long command has come, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(runs: int | None = None) -> Iterator[Callable[..., None]]:
    """What to call with the number of runs that are done, and that of all where it is not known from the start.

    Drawn on stderr, with the time that the rest takes, and only on a terminal.
    """
    if runs == 1 or not sys.stderr.isatty():
        yield lambda done, of=None: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=runs)

        def tell(done: int, of: int | None = runs) -> None:
            bar.update(task, completed=done, total=of)

        yield tell
