"""Two clusters' worth of users, nodes and jobs in one: what they come to together, and what is left of one of them.

The others bear `MARK` in all their names, so that whatever mixes them up is seen in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.coordination.record import ExceptionOutcome
from perdure.model.observation import Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Event, Looked

MARK = "zz"
MINE = re.compile(r"\b(?:ada|bob|n\d|4711\d{3}|[ex]\d+|scratch|home|p4)\b")
"""The names that seeds give to users, nodes, jobs, exceptions, resources and partitions."""
UNSEEN = "unseen"  # what the one manager of both did not tell


def as_other(word: str) -> str:
    return f"{word}{MARK}" if MINE.fullmatch(word) else word


def together(mine: Any, others: Any) -> Any:
    """A value of both: mappings and sets have what either has, what is in the order of time stays so."""
    if isinstance(mine, Struct):
        pairs = {name: (getattr(mine, name), getattr(others, name)) for name in mine.__struct_fields__}
        return type(mine)(**{name: pair[0] if name == UNSEEN else together(*pair) for name, pair in pairs.items()})
    if isinstance(mine, Mapping):
        shared = {name: together(mine[name], others[name]) for name in mine.keys() & others.keys()}
        return {**others, **mine, **shared}
    if isinstance(mine, frozenset):
        return mine | others
    if isinstance(mine, tuple):
        return tuple(sorted((*others, *mine), key=lambda each: each.time_s))
    return mine + others if isinstance(mine, int) else mine


def seen_together(event: Event, others: ControllerState) -> Event:
    """What is seen of both, where the others are as they were."""
    if not isinstance(event, Looked) or not event.observation.nodes:
        return event
    seen, known = event.observation, others.known
    return Looked(_seen_beside(seen, (*known.jobs.values(),), (*known.running.values(),), (*known.nodes.values(),)))


def _seen_beside(seen: Observation, jobs: Any, attempts: Any, nodes: Any) -> Observation:
    if seen.only is not None:
        return seen
    return replace(seen, jobs=(*jobs, *seen.jobs), attempts=(*attempts, *seen.attempts), nodes=(*nodes, *seen.nodes))


class Mine:
    """What is left of a value without the others."""

    def __init__(self) -> None:
        self._of_others: dict[int, tuple[Any, bool]] = {}  # by id, with what it is of, which keeps the id

    def __call__(self, value: Any) -> Any:
        if isinstance(value, ControllerState):
            value = replace(value, fleet=replace(value.fleet, live_jobs=0, running_jobs=0))
        if isinstance(value, Struct):
            if not self._is_of_others(value):
                return value
            return replace(value, **{name: self(getattr(value, name)) for name in value.__struct_fields__})
        if isinstance(value, Mapping):
            left = {key: self(each) if isinstance(each, frozenset) else each for key, each in value.items()}
            return {k: each for k, each in left.items() if not (self._is_of_others(k) or self._is_of_others(each))}
        if isinstance(value, tuple | list | frozenset):
            return type(value)(each for each in value if not self._is_of_others(each))
        return value

    def _is_of_others(self, value: Any) -> bool:
        known = self._of_others.get(id(value))
        if known is None:
            known = self._of_others[id(value)] = (value, any(MARK in text for text in texts(value)))
        return known[1]


def texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from texts(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts(key)
            yield from texts(each)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from texts(each)


def is_of_both(value: Any) -> bool:
    """Whether it names one of mine and one of the others."""
    said = list(texts(value))
    return any(MARK in text for text in said) and any(MINE.search(text) for text in said)


def is_mixed(mine: ControllerState, others: ControllerState) -> bool:
    """Whether one sees the other for a reason: any all-clear looks at what waits for another once more, and a job that
    its manager has forgotten may have run in any partition.
    """
    if any(record.outcome is ExceptionOutcome.CLEARING for record in others.chain.ended.values()):
        return True
    return any(case.job.partition == "" for case in mine.cases.values())
