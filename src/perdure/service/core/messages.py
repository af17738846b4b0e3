"""What the controller is given, and what it asks for: its events and effects."""

from __future__ import annotations

from msgspec import Struct

from perdure.coordination.messages import Input, Refused, Ticked
from perdure.coordination.record import ExceptionRecord
from perdure.model.actions import Action
from perdure.model.events import ActionEnded, ClusterEvent
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.observation import Observation
from perdure.model.tagged import Tagged
from perdure.service.core.case import Failure
from perdure.triage.verdict import Verdict

PERDURE = "perdure"  # who asks, where no person does


class Looked(Tagged, frozen=True):
    """The cluster was looked at."""

    observation: Observation


class Judged(Tagged, frozen=True):
    """Triage has a verdict on a failed attempt."""

    time_s: float
    attempt: AttemptId
    verdict: Verdict

    @property
    def key(self) -> str:
        return f"judged:{self.attempt}"


class Ordered(Tagged, frozen=True):
    """A person, or the scheduling policy in force, asked for an action."""

    time_s: float
    action: Action
    by: str
    reason: str
    ttl_s: float | None = None  # it is not begun later than this; None: as the settings have it

    @property
    def key(self) -> str:
        return f"ordered:{self.action.key}:{self.time_s:.3f}"


class ChainInput(Tagged, frozen=True):
    """Programs have raised exceptions, answered, registered; or time has passed on the chain."""

    time_s: float
    inputs: tuple[Input, ...] = (Ticked(),)


class ExceptionChanged(Tagged, frozen=True):
    """An exception is new, or something was said of it: its standing is written over what was written before."""

    time_s: float
    record: ExceptionRecord

    @property
    def key(self) -> str:
        r = self.record
        return f"exception:{r.id}:{len(r.verdicts)}.{len(r.annotations)}.{r.repeats}:{r.state}:{r.standing}"


class HandlerAsked(Tagged, frozen=True):
    """It is the turn of a registered handler."""

    time_s: float
    record: ExceptionRecord
    handler: str  # as it called itself
    until_s: float
    handler_id: str = ""  # a user's with its owner before it; "" in what older versions wrote

    @property
    def key(self) -> str:
        return f"asked:{self.record.id}:{self.handler_id or self.handler}:{self.time_s:.3f}"


class Ended(Tagged, frozen=True):
    """Actions came to their end."""

    ends: tuple[ActionEnded, ...]
    held: frozenset[str] = frozenset()  # keys of Perdure's holds that come after a release among them


Event = Looked | Judged | Ended | Ordered | ChainInput


class Journalled(Struct, frozen=True):
    """A fact to be written down. Events also update what is shown of jobs, attempts, nodes and exceptions."""

    event: ClusterEvent | Judged | ActionEnded | Ordered | ExceptionChanged | HandlerAsked


class Judge(Struct, frozen=True):
    """Read the log of this attempt and judge it; the answer comes back as `Judged`."""

    attempt: Attempt


class Study(Struct, frozen=True):
    """Read the log of this attempt, which went well, to compare failures of the same job with it. No answer comes."""

    attempt: Attempt
    job: Job


class Act(Struct, frozen=True):
    """An action to be journalled as an intent, then carried out unless it has expired."""

    action: Action
    by: str
    reason: str
    expires_s: float
    exception_id: str = ""


class Noted(Struct, frozen=True):
    """The standing of an exception that is a failure, to be written over what was written of it before."""

    record: ExceptionRecord
    failure: Failure


Effect = Journalled | Judge | Study | Act | Noted | Refused
