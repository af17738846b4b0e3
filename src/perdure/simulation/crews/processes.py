"""Processes of this machine that run the cases of a sweep."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.simulation.sweep import Alone, Case, Run, Runs, Setting, run_case


@dataclass(frozen=True, slots=True)
class Processes:
    """A crew of so many processes, each of which is given the tables once."""

    count: int

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[Case]) -> Runs:
        """See `Crew.runs`. Raises `InputError` where a process dies."""
        count = min(self.count, len(wanted))
        if count <= 1:
            yield from Alone().runs(tables, setting, wanted)
            return
        others = set(active_children())
        # Spawned, not forked: a fork would copy the locks of threads that numeric libraries may have started.
        with ProcessPoolExecutor(count, get_context("spawn"), _begin, (tables, setting)) as pool:
            places = {pool.submit(_run_here, case): place for place, case in enumerate(wanted)}
            try:
                for future in as_completed(places):
                    yield places.pop(future), future.result()
            except BrokenProcessPool as err:
                mend = "Ask for fewer --workers: perhaps memory ran out"
                raise InputError("whatif", "a worker process died", mend) from err
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                if places:  # nobody waits for what is still running
                    for process in set(active_children()) - others:
                        process.terminate()


_shared: tuple[Sequence[JobTable], Setting]  # of a worker process: what it was started with


def _begin(tables: Sequence[JobTable], setting: Setting) -> None:
    global _shared
    _shared = tables, setting
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends workers without a word; the parent says it


def _run_here(case: Case) -> Run:
    return run_case(*_shared, case)
