"""What the chain is told, and what it tells: the inputs and effects of `coordination.chain.advance`."""

from __future__ import annotations

from msgspec import Struct

from perdure.coordination.record import Annotation, ExceptionOutcome, ExceptionRecord
from perdure.coordination.ruling import Registration, Ruling
from perdure.model.actions import Action
from perdure.model.identity import AttemptId

# -- what comes in


class ExceptionRaised(Struct, frozen=True):
    """A new exception.

    Perdure's `own` is never refused for their number, and never folded into another's. Of a `guest`, who is a user and
    not the site, there may be this many at a time.
    """

    record: ExceptionRecord
    own: bool = False
    guest: bool = False
    is_named: bool = False  # whoever raises it has chosen its id, and may have raised it before


class Answered(Struct, frozen=True):
    """A registered handler has ruled on an exception that it was asked about."""

    exception_id: str
    handler: str
    ruling: Ruling


class Annotated(Struct, frozen=True):
    exception_id: str
    annotation: Annotation


class HandlerEnlisted(Struct, frozen=True):
    """A handler registers, or renews its lease."""

    registration: Registration


class Left(Struct, frozen=True):
    handler: str


class Failed(Struct, frozen=True):
    """An action that an answer owns was not carried out: a person is needed."""

    action_key: str
    note: str


class ReadBack(Struct, frozen=True):
    """An action on a node that an answer owns was carried out: what the resource manager says of the node since."""

    action_key: str
    note: str


class Settled(Struct, frozen=True):
    """How the subject of an exception fared is known now."""

    exception_id: str
    outcome: ExceptionOutcome
    note: str = ""  # how that came about


class Closed(Struct, frozen=True):
    """A person has dealt with an exception that waited for one; the annotation says who, and how."""

    exception_id: str
    annotation: Annotation


class LetGo(Struct, frozen=True):
    """A job is not held any more: at all, or, with an `episode`, because of that exception."""

    attempt: AttemptId
    episode: str = ""


class Ticked(Struct, frozen=True):
    """Time has passed."""


Input = (
    ExceptionRaised | Answered | Annotated | HandlerEnlisted | Left | Failed
    | ReadBack | Settled | Closed | LetGo | Ticked
)  # fmt: skip


# -- what comes out


class Changed(Struct, frozen=True):
    """A record is other than before, to be written over what was written of it. Told once a batch."""

    record: ExceptionRecord
    actions: tuple[Action, ...] = ()  # to be carried out now: its HANDLED answer owns them


class TurnBegun(Struct, frozen=True):
    """A registered handler is to be told that it is its turn."""

    record: ExceptionRecord
    handler: str
    until_s: float


class Refused(Struct, frozen=True):
    """An input that changed nothing, and why."""

    given: Input
    what: str
    fix: str


Effect = Changed | TurnBegun | Refused
