"""Fair Tree: users ranked by who has had least of their share, account by account from the root.

Among siblings LevelFS = S / U: S is the share of an account or user among its siblings' shares, U that of its usage
among its siblings' usage. Siblings are visited from the largest LevelFS on, and accounts with the same one are taken as
if they were one. A user's factor is the rank, from the number of users down to 1, by that number; equal ones share the
higher rank.

Source: https://slurm.schedmd.com/fair_tree.html, and priority/multifactor/fair_tree.c of SchedMD/slurm 284c3b9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

ROOT = 0


@dataclass(frozen=True, slots=True)
class ShareTree:
    """Accounts and users, parents before their children; entry 0 is the root. Columns of shape (n_nodes,).

    Shares are compared among siblings only: 3 and 1 are the same as 30 and 10.
    """

    parent: tuple[int, ...]
    shares: tuple[int, ...]
    is_user: tuple[bool, ...]

    def children(self) -> list[list[int]]:
        """The nodes right below each node, in ascending order."""
        found: list[list[int]] = [[] for _ in self.parent]
        for node, parent in enumerate(self.parent):
            if node != ROOT:
                found[parent].append(node)
        return found


def fair_shares(tree: ShareTree, usage: Sequence[float]) -> list[float]:
    """The factor of each user, shape (n_nodes,), 0 for accounts; `usage` is that of each user, 0 for accounts.

    Usage may be in any unit, as only its shares count. An account that has had less of its share than a sibling puts
    all of its users before those of the sibling, whatever they used themselves: this is what sets the tree apart from a
    product of factors.

    >>> tree = ShareTree(parent=(0, 0, 0, 1, 2), shares=(1, 1, 1, 1, 1), is_user=(False, False, False, True, True))
    >>> fair_shares(tree, [0, 0, 0, 50.0, 200.0])  # one user in each of two accounts
    [0.0, 0.0, 0.0, 1.0, 0.5]
    """
    levels, children = level_fs(tree, usage), tree.children()
    factors, users = [0.0] * len(tree.parent), sum(tree.is_user)
    rank = shared = users

    def visit(siblings: Sequence[int], tied: bool) -> None:
        nonlocal rank, shared
        order = sorted(siblings, key=lambda node: (-levels[node], not tree.is_user[node]))
        before, i = None, 0
        while i < len(order):
            node = order[i]
            same = tied or levels[node] == before
            tied, before = False, levels[node]
            if tree.is_user[node]:
                shared = shared if same else rank
                factors[node] = shared / users
                rank -= 1
                i += 1
            else:
                end = i
                while end < len(order) and levels[order[end]] == levels[node]:
                    end += 1
                visit([child for account in order[i:end] for child in children[account]], same)
                i = end

    visit(children[ROOT], tied=False)
    return factors


def level_fs(tree: ShareTree, usage: Sequence[float]) -> list[float]:
    """LevelFS of each account and user, shape (n_nodes,); infinite for one that has used nothing, 0 for one without a
    share.

    Above 1 a node has had less than its share among its siblings, below 1 more.
    """
    used = list(usage)
    for node in range(len(used) - 1, ROOT, -1):
        used[tree.parent[node]] += used[node]
    shares = [0] * len(used)
    for node in range(1, len(used)):
        shares[tree.parent[node]] += tree.shares[node]

    def level(node: int) -> float:
        if node == ROOT or tree.shares[node] == 0:
            return 0.0
        if used[node] == 0:
            return inf
        return (tree.shares[node] / shares[tree.parent[node]]) / (used[node] / used[tree.parent[node]])

    return [level(node) for node in range(len(used))]
