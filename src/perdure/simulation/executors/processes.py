"""Processes of this machine that run the cases of a sweep, or the parts of another piece of work."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.simulation.sweep import Runs, Setting, SweepCase, run_case

Part = TypeVar("Part")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Processes:
    """An executor of N processes, each of which gets the tables once."""

    count: int

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[SweepCase]) -> Runs:
        """See `SweepExecutor.runs`. Raises `InputError` where a process dies."""
        return spread(run_case, (tables, setting), wanted, self.count)


def spread(
    work: Callable[..., Found], shared: tuple[Any, ...], parts: Sequence[Part], count: int
) -> Generator[tuple[int, Found], None, None]:
    """Call ``work(*shared, part)`` for all parts in this many processes; report each as it is done, with its place.

    `work` is a function of a module. One process is this one. Raises what `work` does, and `InputError` where a process
    dies.
    """
    count = min(count, len(parts))
    if count <= 1:
        yield from ((place, work(*shared, part)) for place, part in enumerate(parts))
        return
    others = set(active_children())
    # Spawned, not forked: a fork would copy the locks of threads that numeric libraries may have started.
    with ProcessPoolExecutor(count, get_context("spawn"), _begin, (work, shared)) as pool:
        places = {pool.submit(_work_here, part): place for place, part in enumerate(parts)}
        try:
            for future in as_completed(places):
                yield places.pop(future), future.result()
        except BrokenProcessPool as err:
            fix = "Ask for fewer --workers: perhaps memory ran out"
            raise InputError("whatif", "a worker process died", fix) from err
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if places:  # nobody waits for what is still running
                for process in set(active_children()) - others:
                    process.terminate()


_given: tuple[Callable[..., Any], tuple[Any, ...]]  # of a worker process: what it was started with


def _begin(work: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    global _given
    _given = work, shared
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends workers without a word; the parent says it


def _work_here(part: object) -> Any:
    work, shared = _given
    return work(*shared, part)
