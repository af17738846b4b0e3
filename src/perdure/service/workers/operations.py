"""What the HTTP API may ask of the running service: a small door between the web and the controller's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.model.actions import Action
from perdure.retry.budget import BudgetStanding
from perdure.service.exceptions.coordinator import Coordinator


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the service."""

    cluster: str
    backend: str  # "local", "slurm", "simulated"
    armed: bool  # False: it observes and says what it would do
    stopped: bool  # the kill switch is on: no action is begun
    last_look_s: float | None  # when the cluster was last looked at; None before the first time
    unseen: dict[str, str] = field(default_factory=dict)  # part that cannot be asked -> why
    ready: bool = False  # the journal can be written, and the cluster was looked at recently
    unready: tuple[str, ...] = ()  # why not, without names of files or machines
    look_every_s: float = 0.0  # how often it is looked at when nothing happens
    answered_s: float | None = None  # when the resource manager answered last; None where that is not known
    retries: BudgetStanding | None = None  # the cluster's budget
    spent: tuple[
        BudgetStanding, ...
    ] = ()  # budgets that make retries start later now; a few, the latest to have room first
    spool: str = ""  # the directory in which it finds what Slurm's hooks write; "" where it has none
    left: Mapping[str, int] = field(default_factory=dict)  # retries that each kind of budget has left, at the least


class Operations(Protocol):
    """Each call returns once what it asks for is durable. Raises `PerdureError`s that name the fix."""

    @property
    def coordinator(self) -> Coordinator:
        """Where the chain of exceptions is reached."""

    def status(self) -> Status: ...

    def order(self, action: Action, by: str, reason: str) -> str:
        """Plan an action in a person's name; returns its key."""

    def withhold(self, key: str, by: str) -> None:
        """Keep a planned action from being begun. Raises `ClusterError` where it has begun already."""

    def undo(self, key: str, by: str) -> str:
        """Plan the action that takes a finished one back; returns its key."""

    def stop_all(self, on: bool, by: str) -> str:
        """Turn the kill switch; what could not be written next to it, "" mostly."""

    def submit(self, spec: dict[str, Any]) -> str:
        """Submit a job to the embedded cluster; returns its id. Other clusters refuse."""

    def fault(self, node: str, kind: str) -> None:
        """Inject a fault (fail, freeze, thaw, return) into a node of the embedded cluster. Others refuse."""

    def log_text(self, job_id: str, incarnation: int, max_bytes: int) -> bytes:
        """The end of an attempt's log: as it was kept when the attempt failed, else read with its owner's rights."""

    def kept_log(self, job_id: str, incarnation: int) -> str:
        """Path of the file in which the log of a failed attempt is kept; "" where it is not."""
