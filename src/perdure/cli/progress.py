"""What a person is told while a long command works: how far it has come, and that the simulator is compiled first.

Compiling is done once on a machine, and takes longer than people wait in silence.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
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


def tell_of_compiling(jobs: int, policies: Sequence[str], placement: str) -> None:
    """Say on stderr that the replay of this many jobs, repeats counted, compiles first, where it does."""
    from perdure.simulation.warm import must_compile

    if must_compile(jobs, policies, placement):
        _say_it_compiles()


def tell_of_compiling_queue(jobs: int) -> None:
    """The same of the first fork of a live queue of so many jobs; the plain loop simulates short ones."""
    from perdure.waits.rollout import SMALL

    if jobs > SMALL and must_compile_queue():
        _say_it_compiles()


def must_compile_queue() -> bool:
    """Whether the first fork of a live queue on nodes begins with compiling."""
    if find_spec("numba") is None:
        return False
    from perdure.simulation.compiled.cache import is_kept

    return not is_kept("live._resume_on_nodes")


def _say_it_compiles() -> None:
    sys.stderr.write("perdure: compiling the simulator, once on this machine: 5 to 20 s.\n")
