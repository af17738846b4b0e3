"""The edge between values and the journal's text: dataclasses to JSON and back.

Text of a cluster is hostile: job names and reasons may hold NULs and lone surrogates, which databases refuse. Both
become U+FFFD here, so what is read back equals `cleaned` of what was written. Floats must be finite.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from perdure.coordination.record import ExceptionRecord
from perdure.coordination.ruling import Registration
from perdure.errors import StateError
from perdure.model.actions import Action
from perdure.model.events import ActionEnded, ClusterEvent
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node
from perdure.retry.decide import Decision
from perdure.retry.history import NodeTrouble, Spent
from perdure.service.case import Case
from perdure.service.controller import ExceptionChanged, HandlerAsked, Judged, Ordered
from perdure.triage.verdict import Verdict

T = TypeVar("T")

StoredEvent = ClusterEvent | Judged | ActionEnded | Ordered | ExceptionChanged | HandlerAsked

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Codec(Generic[T]):
    """JSON text of one kind of value. The adapter behind it is built at the first use."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def encode(self, value: T) -> str:
        """The JSON text of `value`: without NULs and lone surrogates, hence safe for any database."""
        to_json = self._adapter.serializer.to_json
        try:
            text = to_json(value).decode()
        except (PydanticSerializationError, UnicodeEncodeError):
            return to_json(cleaned(value)).decode()
        if r"\u0000" in text or REPLACEMENT in text:  # of a key, a surrogate is replaced without a word, and thrice
            text = to_json(cleaned(value)).decode()
        return text

    def decode(self, text: str | bytes) -> T:
        """Read what `encode` wrote. Raises `StateError` for anything else."""
        try:
            return cast("T", self._adapter.validator.validate_json(text))
        except ValidationError as err:
            first = err.errors(include_url=False, include_input=False)[0]
            at = ".".join(map(str, first["loc"])) or "the whole"
            raise StateError(
                "the journal", f"a stored value is unreadable at {at}: {first['msg']}", "Restore it from a backup"
            ) from err

    def of(self, value: Any) -> T:
        """Read what `encode` wrote, parsed already. Raises `StateError` for anything else."""
        return self.decode(json.dumps(value))

    @property
    def kind(self) -> Any:
        return self._kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._kind)


EVENT: Codec[StoredEvent] = Codec(Annotated[StoredEvent, Field(discriminator="kind")])
ACTION: Codec[Action] = Codec(Annotated[Action, Field(discriminator="kind")])
JOB: Codec[Job] = Codec(Job)
ATTEMPT: Codec[Attempt] = Codec(Attempt)
NODE: Codec[Node] = Codec(Node)
VERDICT: Codec[Verdict] = Codec(Verdict)
EXCEPTION: Codec[ExceptionRecord] = Codec(ExceptionRecord)
REGISTRATION: Codec[Registration] = Codec(Registration)
DECISION: Codec[Decision] = Codec(Decision)
CASE: Codec[Case] = Codec(Case)
TROUBLES: Codec[tuple[NodeTrouble, ...]] = Codec(tuple[NodeTrouble, ...])
SPENT: Codec[tuple[Spent, ...]] = Codec(tuple[Spent, ...])
INSTANTS: Codec[tuple[float, ...]] = Codec(tuple[float, ...])
UNSEEN: Codec[dict[str, str]] = Codec(dict[str, str])


def clean(text: str) -> str:
    """`text` as every database takes it: NULs and lone surrogates replaced, paired surrogates joined.

    >>> clean("a\\0b\\ud800c")
    'a\ufffdb\ufffdc'
    """
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", REPLACEMENT)


def cleaned(value: Any) -> Any:
    """`value` with `clean` done to every text in it."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (tuple, list, frozenset)):
        return type(value)(map(cleaned, value))
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: cleaned(getattr(value, f.name)) for f in fields(value)})
    return value
