"""HTCondor as a kind of resource manager: how a schedd is reached, and whether it is ready to be acted on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from perdure.backends.condor.settings import CondorSettings, identity_of
from perdure.backends.kind import NODE_NAME, ActingService, BackendKind, CallBudget, Checkup, ManagerIdentity
from perdure.backends.protocol import Backend
from perdure.model.jobs import Job

if TYPE_CHECKING:
    from perdure.backends.condor.backend import CondorBackend

LOOK_EVERY_S = 10.0
LOOKS_PER_MINUTE = 10
MINUTE_S = 60.0
JOB_ID = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}", re.ASCII)


class CondorKind(BackendKind[CondorSettings]):
    """One schedd; on one machine one service acts on it."""

    name, label, says = "condor", "HTCondor backend", "this machine's condor_schedd"
    settings = CondorSettings

    @contextmanager
    def open(self, settings: CondorSettings, cluster: str, state: Path) -> Iterator[Backend]:  # noqa: ARG002
        from perdure.backends.condor.backend import CondorBackend
        from perdure.backends.condor.tools import CondorTools

        backend = CondorBackend(cluster, CondorTools(settings))
        try:
            yield backend
        finally:
            backend.close()

    def look_every_s(self, settings: CondorSettings) -> float:  # noqa: ARG002
        return LOOK_EVERY_S

    def call_budget(self, settings: CondorSettings, poll_s: float | None) -> CallBudget:  # noqa: ARG002
        looks = max(LOOKS_PER_MINUTE, MINUTE_S / poll_s if poll_s else 0.0)
        return CallBudget(looks, rounds=6 * looks)

    def manager(self, settings: CondorSettings, backend: Backend) -> ManagerIdentity | None:
        schedd = cast("CondorBackend", backend).schedd
        return ManagerIdentity(schedd, identity_of(schedd, settings))

    def command_elsewhere(self, job: Job, nodes: Sequence[str]) -> str:
        known = [name for name in nodes if NODE_NAME.fullmatch(name)]
        if job.state.is_over or not known or JOB_ID.fullmatch(job.job_id) is None or not job.state.is_waiting:
            return ""
        left_out = "".join(f' && (TARGET.Machine != \\"{name}\\")' for name in known)
        return f'condor_qedit {job.job_id} Requirements "($(condor_q {job.job_id} -af:r Requirements)){left_out}"'

    def checkup(
        self,
        settings: CondorSettings,
        cluster: str,  # noqa: ARG002
        state: Path,  # noqa: ARG002
        holder: Callable[[str], ActingService],
    ) -> Checkup | None:
        from perdure.backends.condor.checkup import check_schedd

        return check_schedd(settings, holder)
