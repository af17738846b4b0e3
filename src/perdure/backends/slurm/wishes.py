"""What a job's owner asks of Perdure in the job's comment: ``perdure:KEY=VALUE``, or the same as JSON.

    perdure:retry=never      (no, off)  leave the job alone
    perdure:nodes=3-4        fewest and most nodes of a restart
    perdure:timeout=requeue  it saves checkpoints: put it back when its walltime is over

Upper and lower case are the same. What is meant for Perdure and not understood is kept, to be answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import re2

from perdure.model.jobs import Wish

MAX_MISREAD = 60  # characters of what was not understood

_SAID = re2.compile(r"(?i)(?:^|[\s;,])perdure:([^\s;,=]{1,40})=([^\s;,]*)")
_RANGE = re2.compile(r"(\d{1,6})-(\d{1,6})")
_RETRY = {"never": Wish.NEVER, "no": Wish.NEVER, "off": Wish.NEVER, "false": Wish.NEVER}
_RETRY |= {"auto": Wish.AUTO, "yes": Wish.AUTO, "on": Wish.AUTO, "true": Wish.AUTO}
_TIMEOUT = {"requeue": True, "stop": False}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a comment asks for."""

    retry: Wish = Wish.AUTO
    nodes: tuple[int, int] | None = None
    requeue_at_timeout: bool = False
    misread: str = ""  # the first word for us that means nothing


def wishes(comment: str) -> Wishes:
    """Read a job's comment.

    >>> wishes("mine; perdure:retry=Off").retry, wishes('{"perdure": {"nodes": "2-3"}}').nodes
    (<Wish.NEVER: 'never'>, (2, 3))
    >>> wishes("perdure:retry=nevr").misread
    'perdure:retry=nevr'
    """
    if "perdure" not in comment.lower():
        return Wishes()
    retry, nodes, at_timeout, misread = Wish.AUTO, None, False, ""
    for key, value in _said(comment):
        found: object = None
        match key:
            case "retry" if value in _RETRY:
                found, retry = True, max(retry, _RETRY[value], key=(Wish.AUTO, Wish.NEVER).index)
            case "nodes":
                found = nodes = _range(value) or nodes
            case "timeout" if value in _TIMEOUT:
                found, at_timeout = True, _TIMEOUT[value]
        misread = misread or ("" if found else f"perdure:{key}={value}"[:MAX_MISREAD])
    return Wishes(retry, nodes, at_timeout, misread)


def _said(comment: str) -> list[tuple[str, str]]:
    """Keys and values, in lower case."""
    plain = [(found[1].lower(), found[2].lower()) for found in _SAID.finditer(comment)]
    return [*plain, *((str(key).lower(), str(value).lower()) for key, value in _json(comment).items())]


def _json(comment: str) -> Mapping[str, object]:
    """What stands under "perdure" in a comment that is JSON; {} where nothing does."""
    if not comment.lstrip().startswith("{"):
        return {}
    try:
        said = json.loads(comment)
    except (ValueError, RecursionError):
        return {}
    ours = said.get("perdure") if isinstance(said, dict) else None
    return ours if isinstance(ours, dict) else {}


def _range(text: str) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(text)
    fewest, most = (int(found[1]), int(found[2])) if found else (0, 0)
    return (fewest, most) if 1 <= fewest <= most else None
