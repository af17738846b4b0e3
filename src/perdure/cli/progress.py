"""How far a long command has come, for a person at a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from perdure.cli.table import age

PATIENCE_S = 2.0  # shorter work is done without a word
EVERY_S = 0.5  # from one drawing to the next
BAR = 20  # characters
WIDTH = 79  # at most; on a narrower terminal as much as fits on one line


@dataclass(slots=True)
class Work:
    """What is done, and how much it is in all; 0 where that is not known."""

    what: str
    begun_s: float
    done: int = 0
    of: int = 0
    unit: str = ""  # of both
    ended: threading.Event = field(default_factory=threading.Event)

    def line(self, now: float) -> str:
        """The progress: a bar and the time that the rest takes, or the time that it took so far."""
        took_s = now - self.begun_s
        if not self.of:
            return f"{self.what}: {age(took_s)}"
        full = BAR * min(self.done, self.of) // self.of
        left = f", about {age(took_s / self.done * (self.of - self.done))} left" if self.done else ""
        return (
            f"{self.what} [{'#' * full}{'.' * (BAR - full)}] {self.done} of {self.of}{self.unit}, {age(took_s)}{left}"
        )

    def draw(self, screen: TextIO) -> None:
        """Draw it again and again until it has ended, once it takes long."""
        if self.ended.wait(PATIENCE_S):
            return
        width = _width(screen)
        while True:
            screen.write(f"\r{self.line(time.monotonic())[:width]:<{width}}")
            screen.flush()
            if self.ended.wait(EVERY_S):
                break
        screen.write("\r" + " " * width + "\r")
        screen.flush()


def _width(screen: TextIO) -> int:
    """Letters that a line of this terminal takes without breaking."""
    try:
        return min(WIDTH, os.get_terminal_size(screen.fileno()).columns - 1)
    except OSError:  # not a terminal, or one of unknown size
        return WIDTH


@contextmanager
def progress(
    runs: int | None = None, what: str = "working", screen: TextIO | None = None, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """What to call with the number of runs that are done, and that of all where it is not known from the start.

    `unit` is that of both, where they are not runs: "MiB".
    Drawn on `screen`, or stderr, once the work takes longer than two seconds, and only on a terminal.
    """
    work = Work(what, time.monotonic(), of=runs or 0, unit=f" {unit}" if unit else "")

    def tell(done: int, of: int | None = None) -> None:
        work.done, work.of = done, of or work.of

    screen = screen or sys.stderr
    if not screen.isatty():
        yield tell
        return
    drawing = threading.Thread(target=work.draw, args=(screen,), daemon=True)
    drawing.start()
    try:
        yield tell
    finally:
        work.ended.set()
        drawing.join()
