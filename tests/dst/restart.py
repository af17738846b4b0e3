"""A law of restarts: what a service knows between two steps, the next one reads back from the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.service.core.case import ControllerState
from tests.dst.broken import must


def check_restored(before: ControllerState, after: ControllerState) -> None:
    """Holds, budgets, what is folded into what, failures and nodes' troubles outlive the service.

    What may be forgotten: failures that are settled, and how jobs and nodes stood at the last look, which the next
    look tells.
    """
    left, found = before.chain, after.chain
    same = (
        ("failures", before.cases, after.cases),
        ("retries that were charged", before.fleet.spent, after.fleet.spent),
        ("troubles of nodes", before.fleet.troubles, after.fleet.troubles),
        ("exceptions on their way", left.open, found.open),
        ("recoveries that were charged", left.spent, found.spent),
        ("handlers", left.handlers, found.handlers),
        ("exceptions in force", _in_force(left), _in_force(found)),
        ("exceptions that ended", _known_to(found, left), dict(found.ended)),
        ("what is folded into what", _folds(left, found), _folds(found, left)),
    )
    for what, was, now in same:
        must(was == now, f"a restart forgets nothing: {what}", *_differences(was, now))


def _in_force(chain: Chain) -> dict[Any, Any]:
    return {name: record for name, record in chain.ended.items() if record.is_in_force or record.holds}


def _known_to(other: Chain, chain: Chain) -> dict[Any, Any]:
    return {name: record for name, record in chain.ended.items() if name in other.ended or record.needs_a_person}


def _folds(chain: Chain, other: Chain) -> dict[Any, Any]:
    return {equal: name for equal, name in chain.equals.items() if other.find(name) is not None}


def _differences(was: Any, now: Any) -> Sequence[Any]:
    if isinstance(was, tuple):
        return was, now
    return [(name, was.get(name), now.get(name)) for name in {**was, **now} if was.get(name) != now.get(name)][:1]
