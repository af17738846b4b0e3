"""What happened: the facts that the controller is fed, each with a key that is the same however often it is seen.

Polling and pushing may both report one fact, late or twice; the journal keeps the first of each key.
"""

from __future__ import annotations

from perdure.model.actions import ActionKey
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node
from perdure.model.tagged import Tagged


class JobChanged(Tagged, frozen=True):
    """A job is new, or something about it is other than before."""

    time_s: float
    job: Job

    @property
    def key(self) -> str:
        return f"job:{self.job.cluster}/{self.job.job_id}:{self.job.state}:{self.job.restarts}:{self.time_s:.3f}"


class JobGone(Tagged, frozen=True):
    """The record of a whole array has become that of its last task: there is no such job any more."""

    time_s: float
    job: Job

    @property
    def key(self) -> str:
        return f"gone:{self.job.cluster}/{self.job.job_id}:{self.time_s:.3f}"


class AttemptStarted(Tagged, frozen=True):
    """An attempt runs that was not known before."""

    time_s: float
    attempt: Attempt

    @property
    def key(self) -> str:
        return f"started:{self.attempt.id}"


class AttemptEnded(Tagged, frozen=True):
    """An attempt is over. The first word on how it ended counts.

    `job` is its job as it was at that look: a job that waits again has been requeued by somebody. None where
    the resource manager has forgotten it.
    """

    time_s: float
    attempt: Attempt
    job: Job | None = None

    @property
    def key(self) -> str:
        return f"ended:{self.attempt.id}"


class NodeChanged(Tagged, frozen=True):
    """A node is new, or its state, reason, GPUs or partitions are other than before."""

    time_s: float
    cluster: str
    node: Node

    @property
    def key(self) -> str:
        return f"node:{self.cluster}/{self.node.name}:{self.node.state}:{self.time_s:.3f}"


class NodeGone(Tagged, frozen=True):
    """A node was taken out of the cluster: its resource manager does not name it any more."""

    time_s: float
    cluster: str
    node: str

    @property
    def key(self) -> str:
        return f"node-gone:{self.cluster}/{self.node}:{self.time_s:.3f}"


class SightChanged(Tagged, frozen=True):
    """A part of the resource manager can no longer be asked (`text` says what and why), or can again (`text` "")."""

    time_s: float
    cluster: str
    part: str  # "controller", "accounting", "log"
    text: str

    @property
    def key(self) -> str:
        return f"sight:{self.cluster}/{self.part}:{self.time_s:.3f}"


class ActionEnded(Tagged, frozen=True):
    """The executor has an outcome for an action that the controller asked for."""

    time_s: float
    action_key: str
    attempt: AttemptId | None
    status: str
    detail: str
    by: str = ""  # the person who ordered it; "" where Perdure did so by itself

    @property
    def key(self) -> str:
        return f"action:{self.action_key}"

    @property
    def action(self) -> ActionKey:
        """What its key says of the action."""
        return ActionKey.of(self.action_key)


ClusterEvent = JobChanged | JobGone | AttemptStarted | AttemptEnded | NodeChanged | NodeGone | SightChanged
