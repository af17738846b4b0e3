"""Whose word a verdict rests on: what one user's attempts say can be forged, and alone moves nobody's node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scipy.special import bdtrc

from perdure.blame.builders.attempts import NODE, OWN_TIERS, AttemptRow, path_of
from perdure.blame.builders.named import Component

CHANCE = 0.01
"""What the others' failures on a component must be less likely than, were it sound."""


def attested(component: Component, rows: Sequence[AttemptRow]) -> bool:
    """May this component be blamed for what happened to these attempts?

    A user and its code may, by their own attempts. All else needs a second source: the resource manager's own word on
    the node, or failures of others than the user with the most failures on it, more of them than chance would bring.

    Chance is binomial: at least as many failures of the others, at the share of failures of attempts that do not cross
    the component, must have a probability below `CHANCE`. The loudest user is left out whole, so no number of failures
    that one user forges moves a node; two users in league can.

    >>> from perdure.blame.builders.attempts import AttemptRow
    >>> def ran(user, node, failed): return AttemptRow(0.0, user, "train", (node,), failed)
    >>> rows = [ran("eve", "n1", True)] * 50 + [ran("ada", "n2", False)] * 50
    >>> attested(("node", "n1"), rows), attested(("node", "n1"), [*rows, ran("bob", "n1", True)])
    (False, True)
    """
    tier, name = component
    if tier in OWN_TIERS:
        return True
    paths = [path_of(row) for row in rows]
    here = [row for row, path in zip(rows, paths, strict=True) if component in path]
    if tier == NODE and any(name in row.down for row in here):
        return True
    failed = Counter(row.user for row in here if row.failed)
    if len(failed) < 2:
        return False
    loudest = failed.most_common(1)[0][0]
    others = [row for row in here if row.user != loudest]
    background = _share(row for row, path in zip(rows, paths, strict=True) if component not in path)
    return bool(bdtrc(sum(row.failed for row in others) - 1, len(others), background) < CHANCE)


def _share(rows: Iterable[AttemptRow]) -> float:
    """Of attempts not judged deterministic, the share that failed; never 0, for rows may be few."""
    seen = [row.failed for row in rows if not (row.failed and row.deterministic)]
    return (sum(seen) + 0.5) / (len(seen) + 1)
