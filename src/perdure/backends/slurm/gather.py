"""Facts for a checkup: at most ten questions to Slurm, and a look at this machine. Changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from perdure.backends.kind import ActingService
from perdure.backends.owner_reader import may_become_others
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.checkup import Facts, SpoolFacts
from perdure.backends.slurm.settings import SlurmSettings
from perdure.backends.slurm.tools import Tools
from perdure.errors import PerdureError
from perdure.installation import user_name
from perdure.model.jobs import Attempt

LOGS = 20  # of recent jobs, that are tried
LOG_BYTES = 4096
DAY_S = 86_400.0
OUR_MARK = "[perdure "


def gather(settings: SlurmSettings, cluster: str, state: Path, holder: Callable[[str], ActingService]) -> Facts:
    """Look at Slurm and at this machine. Raises `ConfigError` where Slurm's tools are not in PATH."""
    backend = SlurmBackend(cluster, Tools(settings.tool_timeout_s, cluster=settings.cluster))
    own = {"now_s": time.time(), "user": user_name(), "uid": os.geteuid()}
    machine = {
        "spool": _spool(settings.spool),
        "state_dir": str(state),
        "state_free_mib": _free_mib(state),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    with backend.batch():
        try:
            config = backend.config()
        except PerdureError as err:
            return Facts(**own, **machine, controller_error=err.what)  # type: ignore[arg-type]
        own["now_s"] = time.time()
        seen = backend.observe(time.time() - DAY_S)
    acting = holder(config.identity)
    marked = [node.name for node in seen.nodes if OUR_MARK in node.reason and not node.is_usable]
    return Facts(
        **own, **machine,  # type: ignore[arg-type]
        config=config,
        controller_error=seen.unseen.get("controller", ""),
        accounting_error=seen.unseen.get("accounting", ""),
        admin_level=_admin_level(settings, str(own["user"])),
        jobs=backend.records,
        reads_as_owner=may_become_others(),
        logs=tuple(_tried(backend, attempt) for attempt in _sample(seen.attempts)),
        node_clocks_ahead=backend.clocks_ahead(config.time_s),
        acting=acting,
        foreign_drains=() if acting.told else marked,
    )  # fmt: skip


def _spool(path: Path | None) -> SpoolFacts | None:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError as err:
        return SpoolFacts(str(path), err.strerror or "cannot be looked at")
    return SpoolFacts(str(path), "", found.st_uid, found.st_gid, found.st_mode & 0o7777)


def _free_mib(state: Path) -> int | None:
    """Of the state directory, or of the nearest directory above it that is there."""
    for place in (state, *state.parents):
        try:
            return shutil.disk_usage(place).free >> 20
        except OSError:
            continue
    return None


def _admin_level(settings: SlurmSettings, user: str) -> str | None:
    try:
        tools = Tools(settings.tool_timeout_s, cluster=settings.cluster)
        answer = tools.run("sacctmgr", "-n", "-P", "show", "user", user, "format=admin")
    except PerdureError:
        return None
    return None if answer.code else answer.out.decode("utf-8", "replace").strip().partition("\n")[0]


def _sample(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """The latest that ended, of each user in turn."""
    by_user: dict[str, list[Attempt]] = {}
    for attempt in reversed(attempts):
        if attempt.state.is_over and attempt.stdout:
            by_user.setdefault(attempt.user, []).append(attempt)
    turns = (attempt for turn in range(LOGS) for own in by_user.values() for attempt in own[turn : turn + 1])
    return [attempt for attempt, _ in zip(turns, range(LOGS), strict=False)]


def _tried(backend: SlurmBackend, attempt: Attempt) -> tuple[str, str]:
    """The log's path, and why it cannot be read."""
    try:
        output = backend.output(attempt, LOG_BYTES)
    except PerdureError as err:
        return attempt.stdout, err.what
    why = next((f"{absent.why}: {absent.says}" for absent in output.absent if absent.path == attempt.stdout), "")
    return attempt.stdout, why if why or output.files else "it is not there"
