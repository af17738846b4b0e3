"""The edge between values and the journal's text: Structs to JSON and back.

Text of a cluster is hostile: job names and reasons may hold NULs and lone surrogates, which databases refuse. Both
become U+FFFD here, so what is read back equals `cleaned` of what was written. Floats must be finite.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec
from pydantic import BaseModel

from perdure.coordination.record import ExceptionRecord
from perdure.coordination.ruling import Registration
from perdure.errors import StateError
from perdure.model.actions import Action
from perdure.model.clean_text import cleaned
from perdure.model.events import ActionEnded, ClusterEvent
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node
from perdure.retry.decide import Decision
from perdure.retry.history import NodeTrouble, Spent
from perdure.service.core.case import Case
from perdure.service.core.messages import ExceptionChanged, HandlerAsked, Judged, Ordered
from perdure.triage.verdict import Verdict

T = TypeVar("T")

StoredEvent = ClusterEvent | Judged | ActionEnded | Ordered | ExceptionChanged | HandlerAsked


def encode(value: Any) -> str:
    """The JSON text of `value`: without NULs and lone surrogates, hence safe for any database."""
    try:
        text = _to_json(value).decode()
    except UnicodeEncodeError:
        return _to_json(cleaned(value)).decode()
    return _to_json(cleaned(value)).decode() if r"\u0000" in text else text


def _plain(value: Any) -> Any:
    """What JSON has no word for: models of the API, and the numbers of NumPy."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _model(kind: type[Any], value: Any) -> Any:
    """A model of the API, of what `_plain` made of it. Raises `ValueError`."""
    if issubclass(kind, BaseModel):
        return kind.model_validate(value)
    raise TypeError(f"{kind.__name__} cannot be read")


_to_json = msgspec.json.Encoder(enc_hook=_plain).encode


class Codec(Generic[T]):
    """Reads the JSON text of one kind of value, or of a union whose members are `Tagged`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def encode(self, value: T) -> str:
        """`encode`, for values of this kind alone."""
        return encode(value)

    def decode(self, text: str | bytes) -> T:
        """Read what `encode` wrote. Raises `StateError` for anything else."""
        try:
            return cast("T", self._decoder.decode(text))
        except ValueError as err:
            what = f"a stored value is unreadable: {' '.join(str(err).split())}"
            raise StateError("the journal", what, "Restore it from a backup") from err

    def of(self, value: Any) -> T:
        """Read what `encode` wrote, parsed already. Raises `StateError` for anything else."""
        return self.decode(_to_json(value))

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        """Made at the first use."""
        return msgspec.json.Decoder(self.kind, dec_hook=_model)


ACTION: Codec[Action] = Codec(Action)
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
MANAGER: Codec[str] = Codec(str)
