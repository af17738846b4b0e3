"""The process of one cluster: the service as `perdure up` runs it, ended with the controller that started it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path

from perdure.errors import ConfigError, PerdureError
from perdure.log import log_to_stderr
from perdure.model.validation import shown
from perdure.service.runtime.one_cluster import run
from perdure.service.settings import BUILT_IN, CLUSTER_NAME, Loaded, load
from perdure.service.store.database import in_own_schema

log = logging.getLogger("perdure")


def load_cluster(file: Path, state: Path, common: Mapping[str, object]) -> Loaded:
    """The settings of the cluster that a file is named for; `state` holds the directories of all.

    Its port is any free one, unless the file names one. Raises `ConfigError`.
    """
    _check_name(file)
    flags = {**common, "service.cluster_name": file.stem, "service.state": state / file.stem}
    flags["service.database"] = in_own_schema(str(common["service.database"]), file.stem)
    found = load(os.environ, file, flags)
    return load(os.environ, file, {**flags, "service.port": 0}) if found.origin["service.port"] == BUILT_IN else found


def _check_name(file: Path) -> None:
    if CLUSTER_NAME.fullmatch(file.stem) is None:
        fix = "Use up to 63 letters, digits, '-', '_' and '.' before .toml"
        raise ConfigError(str(file.parent), f"{shown(file.name)} is not named for a cluster", fix)
    if file.stem.startswith("pg_"):
        raise ConfigError(str(file), "PostgreSQL keeps names that begin with pg_ for itself", "Rename it")


def serve_cluster(file: Path, state: Path, common: Mapping[str, object]) -> None:
    """Serve one cluster until the process is asked to end, or its parent is gone. Runs in a process of its own."""
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, _end)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    log_to_stderr(of=file.stem)
    try:
        code = run(load_cluster(file, state, common).settings, of=file.stem)
    except KeyboardInterrupt:
        code = 0
    except PerdureError as err:
        log.error("%s", err)
        code = 2
    sys.exit(code)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """A controller that was killed must not leave anything behind that acts: others take its clusters over."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
