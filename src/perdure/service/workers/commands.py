"""The commands: where a person's wishes reach the running service (`operations.Operations`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from perdure.backends.protocol import Hooked, Playground
from perdure.errors import ClusterError, LogRefused, NotFound
from perdure.model.actions import Action, NodeAction
from perdure.model.identity import AttemptId
from perdure.model.observation import MANAGER
from perdure.model.output import Why, as_one_text
from perdure.retry.budget import BudgetStanding, standing
from perdure.service.core.messages import Ordered
from perdure.service.core.view import SiteView
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import ActionState
from perdure.service.workers.kill_switch import KillSwitch
from perdure.service.workers.operations import Status

log = logging.getLogger("perdure")

LATE_S, LATE_LOOKS = 60.0, 3  # what lies back longer than this, and this many looks, is not ready
SPENT_SHOWN = 5  # of the budgets that are spent


def retry_budgets(view: SiteView) -> tuple[BudgetStanding, tuple[BudgetStanding, ...], dict[str, int]]:
    """The state of the budgets of retries.

    Returns the cluster's; a few of those that make retries start later, the last to have room first; and how many
    retries the cluster's budget has left, and at the least any user's and any node's.
    """
    found = standing(view.state.fleet, view.rules, view.now)
    spent = sorted((each for each in found if each.room_s > view.now), key=lambda each: -each.room_s)
    left: dict[str, int] = {}
    for each in found:
        left[each.of] = min(each.limit - each.used, left.get(each.of, each.limit))
    return found[0], tuple(spent[:SPENT_SHOWN]), left


class ServiceCommands:
    """Carries each wish out durably before it returns."""

    def __init__(
        self, engine: Engine, backend_name: str, armed: bool, switch: KillSwitch, look_every_s: float = 0.0
    ) -> None:
        self._engine = engine
        self._look_every_s = look_every_s
        self._backend_name = backend_name
        self._armed = armed
        self._switch = switch
        self._coordinator = Coordinator(engine.tell, engine.view, engine.journal.recall, engine.look_now.set)

    @property
    def coordinator(self) -> Coordinator:
        return self._coordinator

    def status(self) -> Status:
        engine = self._engine
        looked, unready = engine.last_look_s, tuple(self._unready())
        retries, spent, left = retry_budgets(engine.view())
        spool = engine.backend.spool if isinstance(engine.backend, Hooked) else None
        return Status(
            cluster=engine.backend.cluster,
            backend=self._backend_name,
            armed=self._armed,
            stopped=self._switch.file.exists(),
            last_look_s=looked,
            answered_s=engine.answered_s,
            look_every_s=self._look_every_s,
            unseen=dict(engine.state.known.unseen),
            ready=not unready,
            unready=unready,
            retries=retries,
            spent=spent,
            spool=str(spool.directory) if spool is not None else "",
            left=left,
        )

    def _unready(self) -> Iterator[str]:
        engine, now = self._engine, time.monotonic()
        store = engine.journal.store
        if engine.looked_s is None:
            yield "the cluster has not been looked at yet"
        elif now - engine.looked_s > LATE_S + LATE_LOOKS * self._look_every_s:
            yield "the cluster was not looked at for long"
        if MANAGER in engine.state.known.unseen:
            yield "the resource manager does not answer"
        if store.trouble or now - store.wrote_s > LATE_S:
            yield "the journal cannot be written"

    def order(self, action: Action, by: str, reason: str) -> str:
        """Plan an action in a person's name; returns its key."""
        self._engine.absorb([Ordered(self._engine.clock(), action, by, reason)])
        return self._engine.journal.latest_key(action)

    def withhold(self, key: str, by: str) -> None:
        """Keep a planned action from being begun."""
        if not self._engine.journal.withhold(key, by, self._engine.clock()):
            raise ClusterError(key, "it is not waiting any more", "Undo it instead")

    def undo(self, key: str, by: str) -> str:
        """Plan the action that takes a finished one back; returns its key."""
        row = self._engine.journal.action(key)
        if row is None:
            raise NotFound(key, "no such action", "See `perdure actions` for the keys")
        inverse = row.action.undo() if row.state is ActionState.DONE else None
        if inverse is None:
            raise ClusterError(key, f"{row.action.kind} that is {row.state} cannot be undone", "See the job's page")
        return self.order(self._meant(inverse), by, f"undo of {key}")

    def _meant(self, action: Action) -> Action:
        """An action of before actions said whose job is meant: that of the user whose attempt it is about."""
        if isinstance(action, NodeAction) or action.user:
            return action
        attempt = self._engine.journal.attempt(action.attempt)
        return replace(action, user=attempt.user) if attempt else action

    def stop_all(self, on: bool, by: str) -> str:
        """Turn the kill switch: a file, so that it works without the service, too."""
        if note := self._switch.turn(by, on=on):
            log.warning("kill switch: %s", note)
        return note

    def submit(self, spec: dict[str, Any]) -> str:
        """Submit a job to the embedded cluster."""
        job_id = self._playground().submit(spec)
        self._engine.look_now.set()
        return job_id

    def fault(self, node: str, kind: str) -> None:
        """Inject a fault into a node of the embedded cluster."""
        self._playground().fault(node, kind)
        self._engine.look_now.set()

    def _playground(self) -> Playground:
        backend = self._engine.backend
        if not isinstance(backend, Playground):
            fix = "Use the cluster's own commands, or try it on `perdure up --cluster local`"
            raise ClusterError(self._engine.backend.cluster, "only the embedded cluster can do that", fix)
        return backend

    def log_text(self, job_id: str, incarnation: int, max_bytes: int) -> bytes:
        """The end of an attempt's log: as it was kept when the attempt failed, else read with its owner's rights."""
        attempt = self._engine.journal.attempt(AttemptId(self._engine.backend.cluster, job_id, incarnation))
        if attempt is None:
            raise NotFound(f"job {job_id}", f"no attempt {incarnation} is known", "See `perdure jobs`")
        kept = self._engine.kept.read(attempt.id, max_bytes) if self._engine.kept is not None else None
        if kept is not None:
            return kept
        output = self._engine.backend.output(attempt, max_bytes)
        if not output.files and output.absent:
            absent = output.absent[0]
            kind = LogRefused if absent.why in (Why.REFUSED, Why.NOT_WRITABLE) else NotFound
            raise kind(absent.path or f"job {job_id}", absent.says, "Look at the job's output option")
        return as_one_text(output, max_bytes)

    def kept_log(self, job_id: str, incarnation: int) -> str:
        """Path of the file in which the log of a failed attempt is kept; "" where it is not."""
        attempt = AttemptId(self._engine.backend.cluster, job_id, incarnation)
        kept = self._engine.kept
        return str(kept.path(attempt)) if kept is not None and kept.has(attempt) else ""
