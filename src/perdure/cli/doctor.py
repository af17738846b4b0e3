"""``perdure doctor``: check a site before the service is armed there."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.options import AsJson, ConfigFile, StateDir, load_settings, user_name
from perdure.cli.output import print_json, print_line

if TYPE_CHECKING:
    from perdure.backends.slurm.backend import SlurmBackend
    from perdure.backends.slurm.checkup import CheckResult, Facts, SpoolFacts
    from perdure.model.jobs import Attempt
    from perdure.service.settings import Settings

LOGS = 20  # of recent jobs, that are tried
LOG_BYTES = 4096
DAY_S = 86_400.0
OUR_MARK = "[perdure "


def doctor(as_json: AsJson = False, state: StateDir = None, config: ConfigFile = None) -> int:
    """Check whether this machine's Slurm is ready for perdure up --act. Changes nothing; asks Slurm at most 10 times.

    Exit codes: 0 all is well, 1 there is something to do, 2 it could not be checked.
    """
    from perdure.backends.slurm.checkup import Mark, findings

    settings = load_settings(config, {"service.state": state}).settings
    facts = gather(settings)
    found = [*findings(facts), *_notices(settings)]
    if as_json:
        print_json("doctor", 1, findings=[asdict(finding) | {"mend": finding.fix} for finding in found])
    else:
        for finding in found:
            print_line(_line(finding))
    if facts.config is None:
        return 2
    return 0 if all(finding.mark is Mark.OK for finding in found) else 1


def _line(finding: CheckResult) -> str:
    return f"{finding.mark:<4} {finding.what}" + (f". {finding.fix}" if finding.fix else "")


def gather(settings: Settings) -> Facts:
    """Look at Slurm and at this machine. Raises `ConfigError` where Slurm's tools are not in PATH."""
    from perdure.backends.owner_reader import may_become_others
    from perdure.backends.slurm.backend import SlurmBackend
    from perdure.backends.slurm.checkup import Facts
    from perdure.backends.slurm.tools import Tools
    from perdure.errors import PerdureError

    backend = SlurmBackend(settings.service.cluster_id, Tools(settings.slurm.tool_timeout_s))
    own = {"now_s": time.time(), "user": user_name(), "uid": os.geteuid()}
    machine = {
        "spool": _spool(_spool_in_use(settings)),
        "state_dir": str(settings.service.state),
        "state_free_mib": _free_mib(settings.service.state),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    with backend.batch():
        try:
            config = backend.config()
        except PerdureError as err:
            return Facts(**own, **machine, controller_error=err.what)  # type: ignore[arg-type]
        own["now_s"] = time.time()
        seen = backend.observe(time.time() - DAY_S)
    other = _other_service(config.identity)
    marked = () if other else tuple(node.name for node in seen.nodes if OUR_MARK in node.reason and not node.is_usable)
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
        other_service=other,
        foreign_drains=marked,
    )  # fmt: skip


def _notices(settings: Settings) -> Iterator[CheckResult]:
    """Whether each target of notices can be reached; none is sent anything."""
    from perdure.backends.slurm.checkup import CheckResult, Mark
    from perdure.errors import ConfigError, NotDelivered
    from perdure.service.notices.notifier import network_of

    for name, channel in settings.notices.targets.by_name.items():
        try:
            yield CheckResult(
                Mark.OK, f"notices to {name}: {channel.check(network_of(settings.notices))} can be reached"
            )
        except (ConfigError, NotDelivered) as err:
            yield CheckResult(Mark.FAIL, f"notices to {name}: {err.where}: {err.what}", err.fix)


def _spool_in_use(settings: Settings) -> Path | None:
    """Where hooks write to: for the running service where there is one, else as it is set here."""
    from perdure.errors import PerdureError
    from perdure.service.client import Client

    try:
        told = Client.of(settings.service.state, os.environ).get("/status").get("spool")
    except PerdureError:
        return settings.slurm.spool
    return settings.slurm.spool if told is None else Path(told) if told else None


def _spool(path: Path | None) -> SpoolFacts | None:
    from perdure.backends.slurm.checkup import SpoolFacts

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


def _admin_level(settings: Settings, user: str) -> str | None:
    from perdure.backends.slurm.tools import Tools
    from perdure.errors import PerdureError

    try:
        answer = Tools(settings.slurm.tool_timeout_s).run("sacctmgr", "-n", "-P", "show", "user", user, "format=admin")
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
    from perdure.errors import PerdureError

    try:
        output = backend.output(attempt, LOG_BYTES)
    except PerdureError as err:
        return attempt.stdout, err.what
    why = next((f"{absent.why}: {absent.says}" for absent in output.absent if absent.path == attempt.stdout), "")
    return attempt.stdout, why if why or output.files else "it is not there"


def _other_service(identity: str) -> str:
    from perdure.service.workers.instance import SYSTEM_DIR, holder_of, lock_dir

    for directory in dict.fromkeys((SYSTEM_DIR, lock_dir(os.environ, os.geteuid()))):
        if (holder := holder_of(identity, directory)) is not None:
            return str(holder)
    return ""
