"""The subset that covers an amount with the least surplus: a knapsack turned round."""

from __future__ import annotations

from collections.abc import Mapping

MAX_SUMS = 2048  # sums that are kept apart; beyond it, close ones count as one

Link = tuple[str, "Link"] | None  # the names that make up a sum, the latest first


def smallest_cover(amounts: Mapping[str, int], needed: int) -> frozenset[str] | None:
    """Names whose amounts sum up to at least `needed`, with the least sum. None where all together are too little.

    Exact while the subsets have no more than `MAX_SUMS` different sums below twice `needed`; else no more than
    ``items x 2 x needed / MAX_SUMS`` above the least. Time: items x `MAX_SUMS`.

    Of the least sum no item can be left out, so it lies below twice `needed`, or is one item. Of sums that fall into
    one bucket the greatest is kept, so that each sum has one that stands for it and covers no less (the trimming of
    Ibarra and Kim's scheme for subset sum, turned round).

    >>> sorted(smallest_cover({"a": 70, "b": 40, "c": 35}, 75) or ())
    ['b', 'c']
    """
    if needed <= 0:
        return frozenset()
    alone = min(((amount, name) for name, amount in amounts.items() if amount >= needed), default=None)
    links: dict[int, Link] = {0: None}
    for name in sorted(amounts, key=lambda name: (-amounts[name], name)):
        if 0 < amounts[name] < needed:
            links = _trimmed(_joined(links, name, amounts[name], needed), needed)
    least = min((total for total in links if total >= needed), default=None)
    if alone is not None and (least is None or alone[0] <= least):
        return frozenset((alone[1],))
    return None if least is None else frozenset(_names(links[least]))


def _joined(links: dict[int, Link], name: str, amount: int, needed: int) -> dict[int, Link]:
    """The sums with and without one more item."""
    joined = dict(links)
    for total, link in links.items():
        if total < needed:  # more than enough already gains nothing by more
            joined.setdefault(total + amount, (name, link))
    return joined


def _trimmed(links: dict[int, Link], needed: int) -> dict[int, Link]:
    if len(links) <= MAX_SUMS:
        return links
    greatest: dict[int, int] = {}
    for total in links:
        bucket = total * MAX_SUMS // (2 * needed)
        if total > greatest.get(bucket, -1):
            greatest[bucket] = total
    return {total: links[total] for total in greatest.values()}


def _names(link: Link) -> list[str]:
    names = []
    while link is not None:
        name, link = link
        names.append(name)
    return names
