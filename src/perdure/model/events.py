"""What happened: the facts that the controller is fed, each with a key that is the same however often it is seen.

Polling and pushing may both report one fact, late or twice; the journal keeps the first of each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node
from perdure.model.value import quick


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job is new, or something about it is other than before."""

    time_s: float
    job: Job
    kind: Literal["job_changed"] = "job_changed"

    @property
    def key(self) -> str:
        return f"job:{self.job.cluster}/{self.job.job_id}:{self.job.state}:{self.job.restarts}:{self.time_s:.3f}"


@dataclass(frozen=True, slots=True)
class JobGone:
    """The record of a whole array has become that of its last task: there is no such job any more."""

    time_s: float
    job: Job
    kind: Literal["job_gone"] = "job_gone"

    @property
    def key(self) -> str:
        return f"gone:{self.job.cluster}/{self.job.job_id}:{self.time_s:.3f}"


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt runs that was not known before."""

    time_s: float
    attempt: Attempt
    kind: Literal["attempt_started"] = "attempt_started"

    @property
    def key(self) -> str:
        return f"started:{self.attempt.id}"


@quick
@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt is over. The first word on how it ended counts.

    `job` is its job as it stood at that look: a job that waits again has been requeued by somebody. None where
    the resource manager has forgotten it.
    """

    time_s: float
    attempt: Attempt
    job: Job | None = None
    kind: Literal["attempt_ended"] = "attempt_ended"

    @property
    def key(self) -> str:
        return f"ended:{self.attempt.id}"


@quick
@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node is new, or its state or reason is other than before."""

    time_s: float
    cluster: str
    node: Node
    kind: Literal["node_changed"] = "node_changed"

    @property
    def key(self) -> str:
        return f"node:{self.cluster}/{self.node.name}:{self.node.state}:{self.time_s:.3f}"


@quick
@dataclass(frozen=True, slots=True)
class SightChanged:
    """A part of the resource manager can no longer be asked (`text` says what and why), or can again (`text` "")."""

    time_s: float
    cluster: str
    part: str  # "controller", "accounting", "log"
    text: str
    kind: Literal["sight_changed"] = "sight_changed"

    @property
    def key(self) -> str:
        return f"sight:{self.cluster}/{self.part}:{self.time_s:.3f}"


@quick
@dataclass(frozen=True, slots=True)
class ActionEnded:
    """The executor has an outcome for an action that the controller asked for."""

    time_s: float
    action_key: str
    attempt: AttemptId | None
    status: str
    detail: str
    kind: Literal["action_ended"] = "action_ended"

    @property
    def key(self) -> str:
        return f"action:{self.action_key}"


ClusterEvent = JobChanged | JobGone | AttemptStarted | AttemptEnded | NodeChanged | SightChanged
