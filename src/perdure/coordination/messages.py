"""What the chain is told, and what it tells: the inputs and effects of `coordination.chain.advance`."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.coordination.record import Annotation, ExceptionRecord, Outcome
from perdure.coordination.ruling import Registration, Ruling
from perdure.model.actions import Action
from perdure.model.identity import AttemptId
from perdure.model.value import quick

# -- what comes in


@quick
@dataclass(frozen=True, slots=True)
class Raised:
    """A new exception.

    Perdure's `own` is never refused for their number, and never folded into another's. Of a `guest`, who is a user and
    not the site, there may be so many at a time.
    """

    record: ExceptionRecord
    own: bool = False
    guest: bool = False
    is_named: bool = False  # whoever raises it has chosen its id, and may have raised it before


@dataclass(frozen=True, slots=True)
class Answered:
    """A registered handler has ruled on an exception that it was asked about."""

    exception_id: str
    handler: str
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Annotated:
    exception_id: str
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class Enlisted:
    """A handler registers, or renews its lease."""

    registration: Registration


@dataclass(frozen=True, slots=True)
class Left:
    handler: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An action that a verdict owns was not carried out: a person is needed."""

    action_key: str
    note: str


@dataclass(frozen=True, slots=True)
class ReadBack:
    """An action on a node that a verdict owns was carried out: what the resource manager says of the node since."""

    action_key: str
    note: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the subject of an exception is known now."""

    exception_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LetGo:
    """A job is not held any more: at all, or, with an `episode`, because of that exception."""

    attempt: AttemptId
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


Input = Raised | Answered | Annotated | Enlisted | Left | Failed | ReadBack | Settled | LetGo | Ticked


# -- what comes out


@dataclass(frozen=True, slots=True)
class Changed:
    """A record is other than before, to be written over what was written of it. Told once a batch."""

    record: ExceptionRecord
    actions: tuple[Action, ...] = ()  # to be carried out now: its HANDLED verdict owns them


@quick
@dataclass(frozen=True, slots=True)
class Asked:
    """A registered handler is to be told that it is its turn."""

    record: ExceptionRecord
    handler: str
    until_s: float


@quick
@dataclass(frozen=True, slots=True)
class Refused:
    """An input that changed nothing, and why."""

    given: Input
    what: str
    mend: str


Effect = Changed | Asked | Refused
