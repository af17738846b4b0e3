"""What the exceptions' chain is to know of the end of an action."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import Failed, Input, LetGo, ReadBack, Settled
from perdure.coordination.record import ExceptionOutcome
from perdure.model.actions import ActionKey, Comment, Hold, OutcomeStatus, Release, Undrain, first_key
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.service.core.messages import PERDURE
from perdure.service.core.view import STILL_NEEDS

LEAVES_IT_TO_A_PERSON = (OutcomeStatus.REFUSED.value, "expired")
_LETS_GO = (OutcomeStatus.DONE.value, OutcomeStatus.SUPERSEDED.value)  # a release after which the job is not held


def consequences(end: ActionEnded, held: Collection[str], chain: Chain) -> Iterator[Input]:
    """What the chain is to know of the end of an action."""
    key, action = first_key(end.action_key), end.action
    if action.is_a(Comment):
        return
    if end.status in LEAVES_IT_TO_A_PERSON:
        yield Failed(key, f"{end.status}: {end.detail}")
    if end.attempt is None:
        yield from _of_a_node(key, end)
        yield from _returned(end, chain)
        return
    if action.is_a(Release) and end.status in _LETS_GO and not end.detail.startswith(STILL_NEEDS):
        yield from _let_go(end.attempt, held, chain)
    if action.is_a(Hold) and action.episode and end.status != OutcomeStatus.DONE.value:
        yield LetGo(end.attempt, action.episode)


def _let_go(attempt: AttemptId, held: Collection[str], chain: Chain) -> Iterator[LetGo]:
    """A release frees a job of all that held it, but for `held`: these hold it from then on."""
    if not any(ActionKey.of(key).attempt == attempt for key in held):
        yield LetGo(attempt)
        return
    for record in chain.ended.values():
        if attempt in record.holds and Hold(attempt, record.id).key not in held:
            yield LetGo(attempt, record.id)


def _of_a_node(key: str, end: ActionEnded) -> Iterator[Input]:
    """What was read back of a node is said; what is only written down in shadow mode, a person has to do."""
    if end.status == OutcomeStatus.DONE.value:
        yield ReadBack(key, end.detail)
    elif end.status == "shadow":
        yield Failed(key, end.detail)


def _returned(end: ActionEnded, chain: Chain) -> Iterator[Input]:
    """What took a node out is over once somebody has returned it by an order to Perdure."""
    node = end.action.about.partition(":")[0]
    if end.status != OutcomeStatus.DONE.value or not end.action.is_a(Undrain):
        return
    note = f"returned to service by {end.by or PERDURE}"
    for record in chain.ended.values():
        if record.keeps_nodes_out and record.subject.nodes == (node,):
            yield Settled(record.id, ExceptionOutcome.RECOVERED, note)
