"""Who has the journal, and who alone acts on a resource manager."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.backends.protocol import Backend
from perdure.errors import InUse, StateError
from perdure.service.settings import ServiceSettings, Settings
from perdure.service.store.journal import Journal
from perdure.service.workers.instance import lock_dir, only_one

STANDBY_S = 0.5  # from one try to take over to the next


def open_journal(service: ServiceSettings, state: Path) -> Journal:
    """The journal; one that is by waits here until whoever has it is gone. Raises as `Journal.open` does."""
    waits = False
    while True:
        try:
            return Journal.open(service.database or state, service.cluster_id)
        except InUse as err:
            if not service.standby:
                raise
            if not waits:
                print(f"Perdure stands by: {err.where} is {err.what}", flush=True)  # noqa: T201
            waits = True
            time.sleep(STANDBY_S)


@contextmanager
def sole_actor(settings: Settings, backend: Backend, state: Path, journal: Journal) -> Iterator[None]:
    """Inside the block no other service on this machine acts on the same manager. Raises `InUse`, `ConfigError`.

    Nor is the journal another manager's, whose jobs have the same ids. Raises `StateError`.
    """
    manager = settings.backend_kind.manager(settings.backend, backend)
    if manager is not None:
        check_manager(journal, manager.name)
    if manager is None or not settings.service.armed:
        yield
        return
    with only_one(manager.identity, state, lock_dir(os.environ, os.geteuid())):
        yield


def check_manager(journal: Journal, name: str) -> None:
    """Raise `StateError` where the journal belongs to another Slurm than the one of that ClusterName."""
    known = journal.manager(name)
    if known != name:
        what = f"it records the jobs of ClusterName={known}, and the Slurm that answers here is {name}"
        fix = "Give each cluster a --state DIR of its own; if this one was renamed, rename it: service.cluster_name"
        raise StateError(journal.where, what, fix)
