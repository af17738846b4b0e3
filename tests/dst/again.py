"""A look that is taken in twice tells nothing new, but that what the first has moved is over."""

from __future__ import annotations

from perdure.coordination.record import ExceptionOutcome
from perdure.model.observation import Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Effect, ExceptionChanged, Journalled, Looked
from perdure.service.core.settings import ControllerSettings
from tests.dst.broken import must
from tests.dst.service import PLAYBOOK

SETTINGS = ControllerSettings(playbook=PLAYBOOK)
_OVER = (ExceptionOutcome.RECOVERED, ExceptionOutcome.WITHDRAWN)


def check_again(state: ControllerState, seen: Observation) -> None:
    """`state` has taken in `seen`."""
    again, effects = step(state, Looked(seen), SETTINGS)
    for effect in effects:
        must(is_settled(effect), "a look that is told again tells nothing new", effect)
    if effects:
        third, more = step(again, Looked(seen), SETTINGS)
        must(third == again and not more, "a look that is told three times tells nothing more", more)


def is_settled(effect: Effect) -> bool:
    """Whether it says that something is over: nodes are back once two looks show them."""
    match effect:
        case Journalled(event=ExceptionChanged(record=record)):
            return record.outcome in _OVER
    return False
