"""``perdure doctor``: check a site before the service is armed there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.options import AsJson, ConfigFile, StateDir, load_settings
from perdure.cli.output import print_json, print_line

if TYPE_CHECKING:
    from perdure.backends.kind import ActingService, CheckResult, Checkup
    from perdure.service.settings import Settings


def doctor(as_json: AsJson = False, state: StateDir = None, config: ConfigFile = None) -> int:
    """Check whether the cluster is ready for perdure up --act: Slurm, HTCondor or Kubernetes. Changes nothing.

    Exit codes: 0 all is well, 1 there is something to do, 2 it could not be checked.
    """
    from perdure.backends.kind import Mark

    settings = load_settings(config, {"service.state": state}).settings
    checkup = of_cluster(settings)
    found = [*checkup.found, *_notices(settings)]
    if as_json:
        print_json("doctor", 1, findings=[asdict(finding) | {"mend": finding.fix} for finding in found])
    else:
        for finding in found:
            print_line(_line(finding))
    if not checkup.answered:
        return 2
    return 0 if all(finding.mark is Mark.OK for finding in found) else 1


def _line(finding: CheckResult) -> str:
    return f"{finding.mark:<4} {finding.what}" + (f". {finding.fix}" if finding.fix else "")


def of_cluster(settings: Settings) -> Checkup:
    """Check the cluster that is set, or the first kind of backend that has something to check. Raises `ConfigError`."""
    from perdure.backends.kind import Checkup
    from perdure.backends.registry import BACKENDS

    service, status = settings.service, _status(settings)
    for kind in (settings.backend_kind, *BACKENDS.values()):
        own = kind.in_use(settings.backends[kind.name], status)
        checkup = kind.checkup(
            own, service.cluster_id, service.state, lambda identity: _acting_service(identity, service.state)
        )
        if checkup is not None:
            return checkup
    return Checkup((), answered=True)


def _status(settings: Settings) -> dict[str, Any]:
    """What the running service says of itself; empty where none runs."""
    from perdure.cli.service_client import Client
    from perdure.errors import PerdureError

    try:
        return dict(Client.of(settings.service.state, os.environ).get("/status"))
    except PerdureError:
        return {}


def _notices(settings: Settings) -> Iterator[CheckResult]:
    """Whether each target of notices can be reached; nothing is sent."""
    from perdure.backends.kind import CheckResult, Mark
    from perdure.errors import ConfigError, NotDelivered
    from perdure.service.notices.notifier import network_of

    for name, channel in settings.notices.targets.by_name.items():
        try:
            yield CheckResult(
                Mark.OK, f"notices to {name}: {channel.check(network_of(settings.notices))} can be reached"
            )
        except (ConfigError, NotDelivered) as err:
            yield CheckResult(Mark.FAIL, f"notices to {name}: {err.where}: {err.what}", err.fix)


def _acting_service(identity: str, state: Path) -> ActingService:
    from perdure.backends.kind import NOBODY_ACTS, ActingService
    from perdure.service.workers.instance import SYSTEM_DIR, holder_of, lock_dir

    for directory in dict.fromkeys((SYSTEM_DIR, lock_dir(os.environ, os.geteuid()))):
        if (holder := holder_of(identity, directory)) is not None:
            return ActingService(str(holder), is_own=holder.state == str(state.absolute()))
    return NOBODY_ACTS
