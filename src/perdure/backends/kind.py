"""What Perdure needs to know of a kind of resource manager before it is opened. One subclass a kind."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from perdure.backends.protocol import Backend
from perdure.model.jobs import Job

S = TypeVar("S")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)  # of those that may be in a command to paste


@dataclass(frozen=True, slots=True)
class CallBudget:
    """How often, in a minute, the service does what costs the resource manager something. None: without a limit."""

    looks: float | None = None
    """Looks at everything."""
    rounds: float | None = None
    """Rounds in which actions are carried out: all that are due go together."""
    early_looks: float | None = None
    """Looks at those failed attempts whose epilogs wait: all that do are looked at together."""


NO_LIMIT = CallBudget()


@dataclass(frozen=True, slots=True)
class ManagerIdentity:
    """What tells one resource manager from all others of its kind."""

    name: str  # what it calls its cluster
    identity: str  # that, and where it is reached


class Mark(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line: what was checked, how it came out, and what to do about it."""

    mark: Mark
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ActingService:
    """The service that acts on a resource manager."""

    told: str = ""  # which one it is, in words; "": none acts
    is_own: bool = False  # it is that of the state directory which is checked


NOBODY_ACTS = ActingService()


@dataclass(frozen=True, slots=True)
class Checkup:
    """What `perdure doctor` found; `answered`: the resource manager could be asked."""

    found: Sequence[CheckResult]
    answered: bool


class BackendKind(ABC, Generic[S]):
    """One kind of resource manager. `S` holds its settings; their table in the settings has the name of the kind."""

    name: ClassVar[str]
    label: ClassVar[str]
    """The backend, as pages call it."""
    says: ClassVar[str]
    """The cluster, as the help of `perdure up` says it."""
    settings: type[S]
    acts_by_default: ClassVar[bool] = False
    """Decisions are carried out unless the settings say otherwise."""
    is_playground: ClassVar[bool] = False
    """Its backend is a `Playground`."""

    @abstractmethod
    def open(self, settings: S, cluster: str, state: Path) -> AbstractContextManager[Backend]:
        """The cluster, under the name that the journal has for it; what is started for it ends with the block.

        `state` is the state directory of the service. Raises `ConfigError` where the settings lead to no cluster.
        """

    def look_every_s(self, settings: S) -> float:  # noqa: ARG002
        """Seconds between two looks at the cluster where ``service.poll_s`` is not set."""
        return 1.0

    def call_budget(self, settings: S, poll_s: float | None) -> CallBudget:  # noqa: ARG002
        """How often the cluster may be asked; `poll_s` is ``service.poll_s``."""
        return NO_LIMIT

    def manager(self, settings: S, backend: Backend) -> ManagerIdentity | None:  # noqa: ARG002
        """Whom other services could watch, too; None where this cluster is the service's own. Raises `ConfigError`."""
        return None

    def fences(self, state: Path) -> tuple[Path, ...]:  # noqa: ARG002
        """Directories of jobs' fences that the cluster itself names to its jobs, each named by its job."""
        return ()

    def demo_nodes(self, settings: S) -> tuple[tuple[str, ...], int] | None:  # noqa: ARG002
        """Nodes, and GPUs of each, that the demonstration workload arrives on; None: none arrives."""
        return None

    def command_elsewhere(self, job: Job, nodes: Sequence[str]) -> str:  # noqa: ARG002
        """What a person can paste so that the job runs away from these nodes; "" where there is no such command."""
        return ""

    def in_use(self, settings: S, status: Mapping[str, Any]) -> S:  # noqa: ARG002
        """The settings as a running service has them, as far as its status shows; `status` is empty where none runs."""
        return settings

    def checkup(
        self,
        settings: S,  # noqa: ARG002
        cluster: str,  # noqa: ARG002
        state: Path,  # noqa: ARG002
        holder: Callable[[str], ActingService],  # noqa: ARG002
    ) -> Checkup | None:
        """See whether the site is ready for Perdure to act; None where there is nothing to check.

        `holder` names the service that acts on the resource manager of an identity.
        """
        return None
