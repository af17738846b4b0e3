"""Which association each job belongs to, and the tree of shares that they make.

An association is a user in an account. Users that the accounting database does not name get one of one share: in the
account that the job names, or below the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perdure.scheduling.slurm.fair_tree import ROOT, ShareTree
from perdure.scheduling.slurm.settings import Association
from perdure.scheduling.view import View

_ROOT = Association("root")


@dataclass(frozen=True, slots=True)
class Associations:
    """The tree of shares; the association behind each of its nodes; and the node of each job, shape (n_jobs,)."""

    tree: ShareTree
    known: tuple[Association, ...]
    of_job: tuple[int, ...]

    def above(self, node: int) -> list[int]:
        """The node and the accounts above it, up to the root: all whose limits hold for its jobs."""
        chain = [node]
        while chain[-1] != ROOT:
            chain.append(self.tree.parent[chain[-1]])
        return chain


def associations_of(view: View, known: Sequence[Association]) -> Associations:
    """The associations of all jobs of a view.

    A job without an account belongs to the first association of its user, which stands for the default account; one
    whose account is not known counts below the root.

    >>> view = View([1], [0], [9], [0], [0], [0], ("",), ("ada",), total_gpus=8, ticks_per_s=1)
    >>> found = associations_of(view, [Association("physics"), Association("physics", "ada", shares=3)])
    >>> found.tree.parent, found.tree.shares, found.of_job
    ((0, 0, 1), (1, 1, 3), (2,))
    """
    found = _GrowingTree(known)
    accounts, users = view.asks.account, np.array(view.user, np.int64)
    kinds = users if accounts is None else accounts.of * np.int64(len(view.users)) + users
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    nodes = np.empty(len(first), np.int64)
    for place in np.argsort(first):  # users that are not known are added in the order in which they come
        row = first[place]
        account = "" if accounts is None else accounts.words[accounts.of[row]]
        nodes[place] = found.node(account, view.users[view.user[row]])
    return Associations(found.tree(), tuple(found.known), tuple(nodes[kind].tolist()))


class _GrowingTree:
    """A tree to which users are added as jobs name them.

    Parents come before their children, whatever the order in the accounting database: `fair_tree` sums usage from the
    last node to the first.
    """

    def __init__(self, known: Sequence[Association]) -> None:
        self.known, self.parent = [_ROOT], [ROOT]
        self.accounts = {_ROOT.account: ROOT}
        self.users: dict[tuple[str, str], int] = {}
        self.default: dict[str, int] = {}  # the first association of a user
        left = [each for each in known if each.account != _ROOT.account or each.user]
        while left:
            ready = [each for each in left if self._parent(each) in self.accounts]
            for each in ready or left:  # one whose parent nobody names is below the root
                self._add(each)
            left = [each for each in left if each not in ready] if ready else []

    def node(self, account: str, user: str) -> int:
        """The node of a user in an account, made with one share where the accounting database has none."""
        if not account and user in self.default:
            return self.default[user]
        account = account if account in self.accounts else _ROOT.account
        if (account, user) in self.users:
            return self.users[account, user]
        return self._add(Association(account, user))

    def tree(self) -> ShareTree:
        shares, is_user = (each.shares for each in self.known), (bool(each.user) for each in self.known)
        return ShareTree(tuple(self.parent), tuple(shares), tuple(is_user))

    def _parent(self, each: Association) -> str:
        return each.account if each.user else each.parent

    def _add(self, each: Association) -> int:
        node = len(self.known)
        self.known.append(each)
        self.parent.append(self.accounts.get(self._parent(each), ROOT))
        if each.user:
            self.users[each.account, each.user] = node
            self.default.setdefault(each.user, node)
        else:
            self.accounts[each.account] = node
        return node
