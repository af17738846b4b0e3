"""Fair Tree, compiled: `perdure.scheduling.slurm.fair_tree` and `usage` define it.

The recursion over accounts is a stack of siblings, sorted, the first on top. Where accounts have the same LevelFS the
one below is marked to be taken together with the one above it. The stack never holds a node twice, so it is as long as
the tree.

Sums run in the order of the plain form, so that factors are the same to the last bit: ranks depend on whether two
levels are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.fair_tree import ROOT, ShareTree, fair_shares
from perdure.scheduling.slurm.usage import DecayedUsage
from perdure.simulation.compiled.kernel import FLAG, LONG, Records, kernel, records


class FairShares(NamedTuple):
    """The shares and the usage of users, and the factor of each of them, as last calculated.

    `used` is in GPU-ticks that decay, `added` in GPU-ticks since the last calculation, counted up to `since` for the
    `held` GPUs. Factors of accounts mean nothing.
    """

    node: Records  # of the tree, parents before their children
    stack: NDArray[np.int64]
    tally: Records  # one record


def fair_shares_of(tree: ShareTree, usage: DecayedUsage | None) -> FairShares:
    """Before the first event; without nodes where no priority depends on them."""
    n = 0 if usage is None else len(tree.parent)
    node = records(
        n,
        parent=LONG,
        shares=LONG,
        of_all=LONG,  # shares of all siblings
        is_user=FLAG,
        first=LONG,  # child; -1 for none
        next=LONG,  # sibling; -1 for none
        initial=np.float64,  # usage of a user before the first event
        used=np.float64,
        below=np.float64,  # usage of all users below
        level=np.float64,
        factor=np.float64,
        tied=FLAG,  # with the one above it on the stack
        merged=FLAG,  # with the account above it on the stack
        like=LONG,  # the next of the accounts that are taken together; -1 for none
        held=LONG,  # as in `DecayedUsage`, like the next two
        added=LONG,
        since=LONG,
    )
    tally = records(1, users=LONG, period=LONG, decay=np.float64, calculated=LONG)
    if usage is not None:
        node["parent"], node["shares"], node["is_user"] = tree.parent, tree.shares, tree.is_user
        node["initial"] = node["used"] = usage.used
        node["factor"] = fair_shares(tree, usage.used)
        node["first"] = node["next"] = -1
        for parent, children in enumerate(tree.children()):
            node["of_all"][children] = sum(tree.shares[child] for child in children)
            if children:
                node["first"][parent] = children[0]
                node["next"][children[:-1]] = children[1:]
        tally["users"], tally["period"], tally["decay"] = sum(tree.is_user), usage.period, usage.decay
    return FairShares(node, np.zeros(n, np.int64), tally)


@kernel
def hold(fair, user, gpus, now):  # type: ignore[no-untyped-def]
    """Change by `gpus` what a user holds from now on; negative where a job ends."""
    add_up(fair, now)
    _count(fair, user, now)
    fair.node[user].held += gpus


@kernel
def add_up(fair, now):  # type: ignore[no-untyped-def]
    """Bring the usage of all up to date, period by period: each multiplies by `decay`, then adds what was held in it.

    Costs the users for each period that has passed; a long idle stretch costs as much as a busy one.
    """
    tally = fair.tally[0]
    while tally.calculated + tally.period <= now:
        tally.calculated += tally.period
        for user in range(len(fair.node)):
            _count(fair, user, tally.calculated)
            fair.node[user].used = fair.node[user].used * tally.decay + fair.node[user].added
            fair.node[user].added = 0


@kernel
def count_from(fair, now):  # type: ignore[no-untyped-def]
    """Start counting: usage is that before the first event, plus what is held from now on."""
    fair.tally[0].calculated = now - now % fair.tally[0].period
    for user in range(len(fair.node)):
        fair.node[user].used = fair.node[user].initial
        fair.node[user].added = 0
        fair.node[user].since = now


@kernel
def rank(fair, now):  # type: ignore[no-untyped-def]
    """Calculate the factors of all users: rank from the number of users down to 1, over that number; equals share a
    rank.

    Siblings are sorted by insertion, which is quadratic in the users of one account: meant for hundreds, not for tens
    of thousands.
    """
    add_up(fair, now)
    _levels(fair)
    users, rank, shared = fair.tally[0].users, fair.tally[0].users, fair.tally[0].users
    top = _push(fair, np.int64(ROOT), 0)
    _sort(fair, 0, top, False)
    while top:
        top -= 1
        node = fair.stack[top]
        tied = fair.node[node].tied
        if fair.node[node].is_user:
            if not tied:
                shared = rank
            fair.node[node].factor = shared / users
            rank -= 1
            continue
        last = node
        while top and fair.node[fair.stack[top - 1]].merged:
            top -= 1
            fair.node[last].like = fair.stack[top]
            last = fair.stack[top]
        fair.node[last].like = -1
        bottom = top
        while node >= 0:
            top = _push(fair, node, top)
            node = fair.node[node].like
        _sort(fair, bottom, top, tied)


@kernel
def _count(fair, user, now):  # type: ignore[no-untyped-def]
    """Add what a user has held since it was last counted."""
    fair.node[user].added += fair.node[user].held * (now - fair.node[user].since)
    fair.node[user].since = now


@kernel
def _levels(fair):  # type: ignore[no-untyped-def]
    """LevelFS of all accounts and users."""
    node = fair.node
    for i in range(len(node)):
        node[i].below = node[i].used
    for i in range(len(node) - 1, ROOT, -1):
        node[node[i].parent].below += node[i].below
    for i in range(1, len(node)):
        if node[i].shares == 0:
            node[i].level = 0.0
        elif node[i].below == 0:
            node[i].level = np.inf
        else:
            node[i].level = (node[i].shares / node[i].of_all) / (node[i].below / node[node[i].parent].below)


@kernel
def _push(fair, account, top):  # type: ignore[no-untyped-def]
    """Put the children of an account on the stack; how many are on it then."""
    child = fair.node[account].first
    while child >= 0:
        fair.stack[top] = child
        top += 1
        child = fair.node[child].next
    return top


@kernel
def _sort(fair, bottom, top, tied):  # type: ignore[no-untyped-def]
    """Sort siblings: the largest level on top, users above accounts of the same; and mark who is like the one above.

    `tied`: whether the first of them is like the one that was before their account.
    """
    for i in range(bottom + 1, top):
        node, place = fair.stack[i], i
        while place > bottom and _before(fair, fair.stack[place - 1], node):
            fair.stack[place] = fair.stack[place - 1]
            place -= 1
        fair.stack[place] = node
    for i in range(bottom, top):
        node = fair.node[fair.stack[i]]
        if i == top - 1:
            node.tied = tied
            node.merged = False
        else:
            above = fair.node[fair.stack[i + 1]]
            node.tied = node.level == above.level
            node.merged = node.tied and not above.is_user and not node.is_user


@kernel
def _before(fair, one, other):  # type: ignore[no-untyped-def]
    """Whether one is above the other on the stack."""
    a, b = fair.node[one], fair.node[other]
    return a.level > b.level or (a.level == b.level and a.is_user and not b.is_user)
