"""Doubly linked lists of jobs, compiled: a job can be put in and taken out anywhere, in constant time.

Lists of one kind share their links, so that a job is in at most one of them. -1 is not a job: before the first and
behind the last one. The kinds here are those of `lending`: by virtual cluster, and across them.

Kept true: ``links[links[row].after].before == row`` and the reverse; `first` and `last` are both -1 or both jobs.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records


def empty_chains(many: int) -> Records:
    """The first and the last job of `many` lists without jobs.

    >>> empty_chains(1).tolist()
    [(-1, -1)]
    """
    chains = records(many, first=LONG, last=LONG)
    chains["first"], chains["last"] = -1, -1
    return chains


def no_links(n: int) -> Records:
    """Of rows below `n`, each in no chain: the job before and the one after it. What is there means nothing yet."""
    return records(n, before=SHORT, after=SHORT)


@kernel
def insert(links, chain, before, row):  # type: ignore[no-untyped-def]
    """Put a job, which is in no chain of this kind, right behind another one of the chain, or in front of all (-1)."""
    after = chain.first if before < 0 else np.int64(links[before].after)
    links[row].before = before
    links[row].after = after
    _join(links, chain, before, row)
    _join(links, chain, row, after)


@kernel
def append(links, chain, row):  # type: ignore[no-untyped-def]
    """Put a job behind all of a chain: the order of a chain that only grows so is that of arrival."""
    insert(links, chain, chain.last, row)


@kernel
def unlink(links, chain, row):  # type: ignore[no-untyped-def]
    """Take a job out of the list that it is in.

    Its own links stay, so that a walk that is at it can go on; they are right until a neighbour moves too.
    """
    _join(links, chain, np.int64(links[row].before), np.int64(links[row].after))


@kernel
def _join(links, chain, before, after):  # type: ignore[no-untyped-def]
    """Link two neighbours; -1 is the end of the chain on that side."""
    if before < 0:
        chain.first = after
    else:
        links[before].after = after
    if after < 0:
        chain.last = before
    else:
        links[after].before = before
