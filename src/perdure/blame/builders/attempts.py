"""Attempts of jobs: where they ran, and the code that they ran.

A user whose code always fails is a component like any node: he is blamed instead of the nodes he ran on. An attempt
that triage calls deterministic would have failed anywhere: it counts against its code and says nothing of the places,
unless it lacked something, and the same code passed elsewhere since it last passed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perdure.blame.builders.named import Component, Named, Path, named

CODE, USER, NODE, GPU, STORAGE = "code", "user", "node", "gpu", "storage"
OWN_TIERS = frozenset({CODE, USER})
"""What belongs to one user alone."""
LOCAL_TIERS = frozenset({*OWN_TIERS, NODE, GPU})
"""What lies within one allocation; all else is shared."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt that is over."""

    end_s: float
    user: str
    job: str  # its name: the same name of the same user is the same code
    nodes: tuple[str, ...]
    failed: bool
    deterministic: bool = False  # as judged by triage
    lacked: bool = False  # it failed for lack of a file, a command or a module, which another node may have
    down: tuple[str, ...] = ()  # of `nodes`, those that the resource manager itself saw go down
    gpus: tuple[str, ...] = ()  # "n7:3", or whatever names them
    switches: tuple[Component, ...] = ()  # ("leaf", "l2"), ("spine", "s1")
    storage: tuple[str, ...] = ()
    image: str = ""


def with_places(rows: Sequence[AttemptRow]) -> list[AttemptRow]:
    """The rows by their ends; what lacked something speaks of its places, if its code passed elsewhere since.

    A node that lost a mount or its software ends jobs of all users by words that read like their own mistakes.
    """
    passed_s: dict[tuple[str, str], dict[str, float]] = {}  # by code and node: the last time
    told = []
    for row in sorted(rows, key=lambda row: row.end_s):
        of_code = passed_s.setdefault((row.user, row.job), {})
        if not row.failed:
            of_code.update(dict.fromkeys(row.nodes, row.end_s))
        elif row.deterministic and row.lacked:
            here_s = max((of_code.get(node, -math.inf) for node in row.nodes), default=math.inf)
            elsewhere_s = max((end_s for node, end_s in of_code.items() if node not in row.nodes), default=-math.inf)
            row = replace(row, deterministic=elsewhere_s <= here_s)
        told.append(row)
    return told


def attempt_window(rows: Iterable[AttemptRow]) -> Named:
    """The window of attempts, a path each. Raises `InputError` where there are none."""
    return named(((path_of(row), 1, int(row.failed)) for row in rows), "<attempts>")


def path_of(row: AttemptRow) -> Path:
    """What an attempt's end speaks of."""
    own = frozenset({(CODE, f"{row.user}/{row.job}"), (USER, row.user)})
    if row.failed and row.deterministic:
        return own
    places: set[Component] = {(NODE, name) for name in row.nodes} | {(GPU, name) for name in row.gpus}
    places |= {*row.switches} | {(STORAGE, name) for name in row.storage}
    return own | places | ({("image", row.image)} if row.image else frozenset())
