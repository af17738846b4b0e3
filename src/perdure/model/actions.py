"""What Perdure may ask of a resource manager, and the outcome.

An action is a value. Its `key` makes it idempotent: it is made from what the action is about, so that deciding
the same thing twice gives the same key, and the same key is carried out at most once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, NamedTuple, get_args

from msgspec import Struct

from perdure.model.identity import AttemptId
from perdure.model.tagged import Tagged

_EPISODE, _AGAIN = "@", "~"  # before the episode of an action on a job; before the number of one planned again


class ActionKey(NamedTuple):
    """What an action's key says. All that knows how keys are written is in this module."""

    kind: str
    about: str  # the attempt as text; of an action on a node the rest
    episode: str  # of an action on a job

    @classmethod
    def of(cls, key: str) -> ActionKey:
        """Take a key apart.

        >>> ActionKey.of("hold:c/7#0@x~2")
        ActionKey(kind='hold', about='c/7#0', episode='x')
        """
        kind, _, rest = first_key(key).partition(":")
        about, _, episode = rest.partition(_EPISODE)
        return cls(kind, about, episode)

    def is_a(self, kind: type[AnyAction]) -> bool:
        return self.kind == kind.__struct_config__.tag

    @property
    def attempt(self) -> AttemptId:
        """The attempt that it is about. Raises `ValueError` where it is about a node."""
        return AttemptId.parse(self.about)


def planned_again(key: str, times: int) -> str:
    """The key of an action that is planned for the second time, or more often."""
    return f"{key}{_AGAIN}{times}" if times > 1 else key


def first_key(key: str) -> str:
    """The key without the number of one planned again."""
    first, _, times = key.rpartition(_AGAIN)
    return first if first and times.isdecimal() else key


def keys_with_episode(kind: type[AnyAction] | None = None) -> str:
    """The pattern in SQL of keys of actions on a job, of one kind or any, that have an episode."""
    return f"{kind.__struct_config__.tag if kind else ''}%{_EPISODE}%"


AGAIN_PATTERN = f"{_AGAIN}%"  # in SQL, what is behind a key that was planned again


class AnyAction(Tagged, frozen=True):
    """What holds of an action unless its class says otherwise."""

    label: ClassVar[str]
    """The action, as pages call it."""
    keeps: ClassVar[bool] = True
    """It is worth as much an hour later, so it does not expire while it waits for a cap."""
    moves: ClassVar[bool] = True
    """It changes what runs where. What does not counts in no cap."""
    recovers: ClassVar[bool] = False
    """It puts a job that failed on its way to run again."""
    takes_node_out: ClassVar[bool] = False
    """A node gets no new work after it; that has caps of its own."""

    @property
    def undoes_own(self) -> bool:
        """Whether it only releases what Perdure held itself: that is never too much, and never too late."""
        return False

    def counts_at(self, begun_s: float) -> float:
        """When it counts in the caps, begun at `begun_s`."""
        return begun_s

    def undo(self) -> Action | None:
        """The action that takes it back, or None where nothing can."""
        return None


class OnJob(AnyAction, frozen=True, kw_only=True):
    """What holds of an action on a job."""

    user: str = ""
    """Whose job it is meant for: a manager that lost its state may have given the id to another's. "": nobody said."""

    def taken(self, user: str) -> Outcome | None:
        """What becomes of it where the id is a job of `user` now; None where that is whose it is meant for."""
        if self.user in ("", user):
            return None
        return Outcome(OutcomeStatus.SUPERSEDED, "the id is another user's job now")


class Requeue(OnJob, frozen=True):
    """Put a job whose attempt has ended back into the queue, away from some nodes.

    Means something only while `attempt` is the job's latest and is over; a newer one makes it superseded.
    """

    label = "Retry"
    recovers = True
    attempt: AttemptId
    exclude: tuple[str, ...] = ()  # added to what the job excludes already; taken out of what it requires
    delay_s: float = 0.0
    node_count: int = 0  # that it starts on; 0: as many as it asks for already
    comment: str = ""  # one line for who looks at the job: see `Comment`
    lift: tuple[str, ...] = ()  # taken out of what the job excludes

    @property
    def key(self) -> str:
        return f"requeue:{self.attempt}"

    def counts_at(self, begun_s: float) -> float:
        """When it may start."""
        return begun_s + self.delay_s

    def undo(self) -> Action:
        return Cancel(self.attempt, user=self.user)


class Preempt(OnJob, frozen=True):
    """Put a job back into the queue while its attempt runs, so that another one runs in its place.

    An attempt that is over by itself makes it superseded. `episode` tells one that is wanted again from an earlier one
    that was not begun in time.
    """

    label = "Preempt"
    keeps = False
    attempt: AttemptId
    episode: str = ""

    @property
    def key(self) -> str:
        return f"preempt:{self.attempt}{_at(self.episode)}"


class Exclude(OnJob, frozen=True):
    """Keep a waiting job off some nodes; `attempt` is the one whose failure is the reason.

    Where too few nodes are left for as many as it asks for, it may be let start on `node_count` instead (0: on as many
    as it asks for already).
    """

    label = "Keep off nodes"
    recovers = True
    attempt: AttemptId
    exclude: tuple[str, ...]
    node_count: int = 0
    comment: str = ""  # as of `Requeue`
    lift: tuple[str, ...] = ()  # as of `Requeue`

    @property
    def key(self) -> str:
        return f"exclude:{self.attempt}" if self.exclude or not self.lift else f"lift:{self.attempt}"


class Hold(OnJob, frozen=True):
    """Keep a waiting job from starting; `attempt` is the one whose failure would only be repeated.

    `episode` tells one hold of a job from the next where it is not the failure of an attempt that causes it.
    """

    label = "Hold"
    keeps = False  # the job has run by then
    attempt: AttemptId
    episode: str = ""

    @property
    def key(self) -> str:
        return f"hold:{self.attempt}{_at(self.episode)}"

    def undo(self) -> Action:
        return Release(self.attempt, self.episode, user=self.user)


class Release(OnJob, frozen=True):
    """Release a held job."""

    label = "Release"
    recovers = True
    attempt: AttemptId
    episode: str = ""
    comment: str = ""  # as of `Requeue`

    @property
    def key(self) -> str:
        return f"release:{self.attempt}{_at(self.episode)}"

    @property
    def undoes_own(self) -> bool:
        return bool(self.episode)

    def undo(self) -> Action:
        return Hold(self.attempt, self.episode, user=self.user)


class Cancel(OnJob, frozen=True):
    """End a job for good."""

    label = "Cancel"
    keeps = False
    attempt: AttemptId

    @property
    def key(self) -> str:
        return f"cancel:{self.attempt}"


class Extend(OnJob, frozen=True):
    """Extend a running attempt: its walltime becomes `walltime_s` seconds, never less than it is."""

    label = "Grant time"
    keeps = False
    attempt: AttemptId
    walltime_s: float

    @property
    def key(self) -> str:
        return f"extend:{self.attempt}:{self.walltime_s:.0f}"


class Comment(OnJob, frozen=True):
    """Write one line into the job's record: what failed, what was decided, where to read more.

    It ends in the service's mark, by which the next one replaces it. Where others have written, none is left.
    """

    label = "Comment"
    moves = False
    attempt: AttemptId
    comment: str

    @property
    def key(self) -> str:
        return f"comment:{self.attempt}"


class TakeNodeOut(AnyAction, frozen=True):
    """A node gets no new work. `episode` tells one time that a node was taken out from the next."""

    takes_node_out = True
    node: str
    reason: str
    episode: str

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.node}:{self.episode}"

    def undo(self) -> Action:
        return Undrain(self.node, f"undo of {self.episode}")


class Drain(TakeNodeOut, frozen=True):
    """Give a node no new work."""

    label = "Drain"


class Down(TakeNodeOut, frozen=True):
    """Give a node up: what runs there ends at once, as by a failure of the node, and it gets no new work."""

    label = "Set down"


class Undrain(AnyAction, frozen=True):
    """Return a node to service that Perdure has drained or given up."""

    label = "Return to service"
    node: str
    episode: str

    @property
    def key(self) -> str:
        return f"undrain:{self.node}:{self.episode}"


def _at(episode: str) -> str:
    return f"{_EPISODE}{episode}" if episode else ""


JobAction = Requeue | Preempt | Exclude | Hold | Release | Cancel | Extend | Comment
NodeAction = Drain | Down | Undrain
Action = JobAction | NodeAction
KINDS: Mapping[str, type[Action]] = {str(action.__struct_config__.tag): action for action in get_args(Action)}
"""Each action by its `kind`. A new one is a class, and a word in one of the two lines above."""
TAKE_NODES_OUT = tuple(kind for kind, action in KINDS.items() if action.takes_node_out)


class OutcomeStatus(StrEnum):
    """The result of an action."""

    DONE = "done"
    REFUSED = "refused"  # the resource manager said no; asking again cannot help
    SUPERSEDED = "superseded"  # the world moved on: a newer attempt exists, or the job is gone


class Outcome(Struct, frozen=True):
    """The end of an action, with the words that say why."""

    status: OutcomeStatus
    detail: str = ""
