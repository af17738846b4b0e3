"""The workers of a Dask cluster, wherever they run, as an executor for a sweep.

Dask moves Python objects between its parts as pickles: whoever reaches the scheduler's port can run programs as its
user. Where Dask is configured with certificates (``distributed.comm.tls``) all of this goes over TLS.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure import __version__
from perdure.errors import ClusterBusy, ClusterError
from perdure.model.table import JobTable
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.sweep import Run, Runs, Setting, SweepCase, run_case

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster
    from distributed import Client, Future

_CONNECT_S = 10
_GLANCE_S = 2.0  # between two looks at the workers while no run ends
_PATIENCE_S = 120.0  # without any worker
_ALIKE = "Install the same there as here"
_CANCELLED = asyncio.CancelledError, concurrent.futures.CancelledError  # Dask knows both
Shared = tuple[Sequence[JobTable], Setting]


@dataclass(frozen=True, slots=True)
class DaskWorkers:
    """The workers of a Dask scheduler that runs somewhere."""

    where: str  # HOST:PORT

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[SweepCase]) -> Runs:
        """See `SweepExecutor.runs`. Raises `ClusterBusy` where no scheduler answers, or has no worker for long."""
        name = f"--workers dask://{self.where}"

        def no_worker(for_s: float) -> None:
            if for_s > _PATIENCE_S:
                what = f"the Dask scheduler has had no worker for {_PATIENCE_S / 60:.0f} minutes"
                raise ClusterBusy(name, what, f"Start some: dask worker {self.where}")

        with quiet(), client_of(f"{'tls' if encrypted() else 'tcp'}://{self.where}", name) as client:
            _must_run(client, name)
            yield from run_on(client, name, (tables, setting), wanted, no_worker)


def run_on(
    client: Client, name: str, shared: Shared, wanted: Sequence[SweepCase], no_worker: Callable[[float], None]
) -> Runs:
    """Hand the cases over; while there is no worker, `no_worker` is told for how long, and may raise."""
    ended: SimpleQueue[int] = SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the tables are large: they go out once
        # A task and no scattered data: where the worker that holds them dies, Dask hands the tables out again.
        tables = client.submit(_hold, shared, pure=False)
        sent = [_anywhere(case) for case in wanted]
        futures = client.map(_run_there, sent, tables=tables, versions=_versions(), name=name, pure=False)
    for place, future in enumerate(futures):
        future.add_done_callback(lambda _, place=place: ended.put(place))
    try:
        for _ in wanted:
            place = _next(ended, client, name, no_worker)
            yield place, replace(_result(futures[place], name), case=wanted[place])
            futures[place].release()
    finally:
        if client.status == "running":
            client.cancel([tables, *futures])


def _hold(shared: Shared) -> Shared:
    return shared


def _anywhere(case: SweepCase) -> SweepCase:
    """The case with a user's file of policies by its whole path: workers may run in other folders."""
    return replace(case, policy=str(Path(case.policy).absolute())) if is_policy_file(case.policy) else case


def _run_there(case: SweepCase, tables: Shared, versions: Mapping[str, str], name: str) -> Run:
    """Run a case in a worker. Raises `ClusterError` where its versions are not the caller's: figures might differ."""
    for part, version in _versions().items():
        if versions[part] != version:
            raise ClusterError(name, f"{part} {version} runs there, and {versions[part]} here", _ALIKE)
    return run_case(*tables, case)


def _next(ended: SimpleQueue[int], client: Client, name: str, no_worker: Callable[[float], None]) -> int:
    """The place of the run that ends next."""
    seen = time.monotonic()  # when there was a worker
    while True:
        with suppress(Empty):
            return ended.get(timeout=_GLANCE_S)
        try:
            workers = client.nthreads()
        except (OSError, ValueError, *_CANCELLED) as err:
            raise _gone(name) from err
        if workers:
            seen = time.monotonic()
        else:
            no_worker(time.monotonic() - seen)


def _result(future: Future[Any], name: str) -> Run:
    from distributed.scheduler import KilledWorker

    try:
        run: Run = future.result()
    except KilledWorker as err:
        fix = "Give the workers more memory: each holds all traces"
        raise ClusterError(name, "several workers died at one and the same run", fix) from err
    except _CANCELLED as err:
        raise _gone(name) from err
    return run


def _gone(name: str) -> ClusterBusy:
    return ClusterBusy(name, "the Dask scheduler went away during the sweep", "Start it again, and ask again")


def encrypted() -> bool:
    """Whether Dask's settings name certificates."""
    import dask

    return bool(dask.config.get("distributed.comm.tls.ca-file", None))


@contextmanager
def client_of(scheduler: str | SLURMCluster, name: str) -> Iterator[Client]:
    """A client of the scheduler at an address, or of a cluster. Raises `ClusterBusy` where none answers."""
    from distributed import Client

    try:
        client = Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as err:
        what = f"no Dask scheduler answers there ({first_line(err)})"
        raise ClusterBusy(name, what, "Start one: dask scheduler") from err
    with client:
        yield client


def _must_run(client: Client, name: str) -> None:
    """Raises `ClusterError` where Perdure does not run in the scheduler, or in a worker that is there by now."""
    try:
        client.run_on_scheduler(_versions)
        client.run(_versions)
    except Exception as err:  # whatever Dask makes of a module that is not there
        raise ClusterError(name, f"Perdure does not run there ({first_line(err)})", _ALIKE) from err


def _versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Perdure": __version__, "Python": python, "NumPy": np.__version__}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what Dask logs: it reports lost connections on stderr at length, and the caller gets an error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a port that another took, versions that differ
            yield
    finally:
        logging.disable(before)


def first_line(err: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return str(err).strip().split("\n")[0] or type(err).__name__
