"""Windows of attempts of jobs: a path is where an attempt ran and the code that it ran.

A user whose code always fails is a component like any node, and is blamed instead of the nodes that it ran on. An
attempt that triage calls deterministic would have failed anywhere: it counts against its code and says nothing about
the places, unless it lacked something, and the same code passed elsewhere since it last passed here.

Cancelled and preempted attempts say nothing about anybody: leave them out of the rows.
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
    """One attempt that is over. Instants are seconds since the epoch.

    Names are compared as they are: write a node in one way. `deterministic` and `lacked` mean something for failed
    attempts only.
    """

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
    """The rows by their ends; one that lacked something counts against its places if its code passed elsewhere since.

    A node that lost a mount or its software ends jobs of all users with messages that read like mistakes of their own.
    The test is made per code: it passed on some other node after it last passed on any of the nodes here. Until then
    the code may be broken everywhere, and the row stays deterministic.

    >>> def row(end_s, node, lacked): return AttemptRow(end_s, "eve", "train", (node,), lacked, lacked, lacked)
    >>> rows = [row(1.0, "n1", False), row(2.0, "n2", False), row(3.0, "n1", True), row(4.0, "n2", True)]
    >>> [(each.nodes, each.deterministic) for each in with_places(rows) if each.failed]
    [(('n1',), False), (('n2',), True)]
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
    """The window of attempts, a path of one unit each, in their order. Raises `InputError` where there are none."""
    return named(((path_of(row), 1, int(row.failed)) for row in rows), "<attempts>")


def path_of(row: AttemptRow) -> Path:
    """The components that an attempt is evidence about: its user and code, and unless deterministic all its places."""
    own = frozenset({(CODE, f"{row.user}/{row.job}"), (USER, row.user)})
    if row.failed and row.deterministic:
        return own
    places: set[Component] = {(NODE, name) for name in row.nodes} | {(GPU, name) for name in row.gpus}
    places |= {*row.switches} | {(STORAGE, name) for name in row.storage}
    return own | places | ({("image", row.image)} if row.image else frozenset())
