"""Slurm as a kind of resource manager: how the one of this machine is reached."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perdure.backends.kind import NODE_NAME, ActingService, BackendKind, CallBudget, Checkup, ManagerIdentity
from perdure.backends.protocol import Backend
from perdure.backends.slurm.settings import SlurmSettings
from perdure.errors import ConfigError, PerdureError
from perdure.model.jobs import Job

if TYPE_CHECKING:
    from perdure.backends.slurm.backend import SlurmBackend
    from perdure.backends.slurm.config import Config

POLL_S = 30.0  # where hooks report what happens in between
LOOKS_PER_MINUTE = 10
MINUTE_S = 60.0
KEEP_OPEN_S = 10.0  # one `scontrol` for looks and actions: longer, and a new slurm.conf would take effect late
WAIT_STEP_S = 1.0  # for a controller that does not answer
JOB_ID = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,18})?", re.ASCII)


class SlurmKind(BackendKind[SlurmSettings]):
    """The Slurm whose tools are in PATH; on one machine one service acts on it."""

    name, label, says = "slurm", "Slurm backend", "this machine's"
    settings = SlurmSettings

    @contextmanager
    def open(self, settings: SlurmSettings, cluster: str, state: Path) -> Iterator[Backend]:  # noqa: ARG002
        from perdure.backends.slurm import backend, spool, tools

        if settings.conf is not None:
            os.environ["SLURM_CONF"] = str(settings.conf)  # a process serves one cluster; chains and hooks need it, too
        hooks = spool.Spool(settings.spool) if settings.spool else None
        asked = tools.Tools(settings.tool_timeout_s, cluster=settings.cluster)
        yield backend.SlurmBackend(cluster, asked, hooks, KEEP_OPEN_S)

    def look_every_s(self, settings: SlurmSettings) -> float:
        looks = self.call_budget(settings, None).looks or 1.0
        return POLL_S if settings.spool else MINUTE_S / max(1.0, looks - 1.0)

    def call_budget(self, settings: SlurmSettings, poll_s: float | None) -> CallBudget:
        looks = settings.looks_per_minute or max(LOOKS_PER_MINUTE, MINUTE_S / poll_s if poll_s else 0.0)
        return CallBudget(looks, rounds=6 * looks, early_looks=3 * looks)

    def manager(self, settings: SlurmSettings, backend: Backend) -> ManagerIdentity | None:
        config = reach(cast("SlurmBackend", backend), settings.start_wait_s)
        return ManagerIdentity(config.cluster, config.identity)

    def command_elsewhere(self, job: Job, nodes: Sequence[str]) -> str:
        if JOB_ID.fullmatch(job.job_id) is None:
            return ""
        if job.state.is_over:
            return f"sbatch --exclude={','.join(nodes)} SCRIPT"
        if not job.state.is_waiting or set(nodes) <= set(job.excluded):
            return ""
        known = filter(NODE_NAME.fullmatch, job.excluded)
        every = ",".join(dict.fromkeys((*known, *nodes)))
        return f"scontrol update JobId={job.job_id} ExcNodeList={every}"  # which replaces what the list held

    def in_use(self, settings: SlurmSettings, status: Mapping[str, Any]) -> SlurmSettings:
        spool = status.get("spool")
        return settings if spool is None else replace(settings, spool=Path(spool) if spool else None)

    def checkup(
        self, settings: SlurmSettings, cluster: str, state: Path, holder: Callable[[str], ActingService]
    ) -> Checkup:
        from perdure.backends.slurm.checkup import findings
        from perdure.backends.slurm.gather import gather

        if settings.conf is not None:
            os.environ["SLURM_CONF"] = str(settings.conf)
        facts = gather(settings, cluster, state, holder)
        return Checkup(findings(facts), answered=facts.config is not None)


def reach(backend: SlurmBackend, wait_s: float) -> Config:
    """What the controller says of its Slurm; waits up to `wait_s` for an answer. Raises `ConfigError` without one."""
    end = time.monotonic() + wait_s
    while True:
        try:
            return backend.config()
        except PerdureError as err:
            if time.monotonic() < end:
                time.sleep(WAIT_STEP_S)
                continue
            conf = os.environ.get("SLURM_CONF", "")
            where = f"SLURM_CONF={conf}" if conf else "slurm"
            fix = "Run `scontrol ping`; name slurm.conf in SLURM_CONF, or set slurm.start_wait_s to wait at the start"
            raise ConfigError(where, f"the controller cannot be asked: {err.what}", fix) from err
