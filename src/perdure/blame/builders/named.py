"""Windows whose components have names, put together path by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from perdure.blame.window import Window, window
from perdure.errors import InputError

Component = tuple[str, str]
"""Tier and name."""
Path = frozenset[Component]
Counted = tuple[Path, int, int]
"""A path, the units that used it, and how many of them failed."""


@dataclass(frozen=True, slots=True)
class Named:
    """A window; `components[i]` is the tier and name of the component with id i, which is also its column."""

    window: Window
    components: tuple[Component, ...]

    def __post_init__(self) -> None:
        if len(self.components) != self.window.n_components:
            raise ValueError(f"{len(self.components)} names for {self.window.n_components} components")


def named(paths: Iterable[Counted], source: str = "<rows>") -> Named:
    """A window with a row for each path given.

    Components are numbered in the order of tier and name, so the same paths in another order give the same numbers.
    Raises `InputError` for no paths and for what `window` refuses.

    >>> found = named([(frozenset({("node", "n1"), ("user", "ada")}), 10, 2)])
    >>> found.components, found.window.units.tolist(), found.window.failures.tolist()
    ((('node', 'n1'), ('user', 'ada')), [10.0], [2.0])
    """
    rows = list(paths)
    if not rows:
        raise InputError(source, "there is no path in it", "Give at least one")
    components = tuple(sorted(frozenset().union(*(path for path, _, _ in rows))))
    number = {component: place for place, component in enumerate(components)}
    lists = [sorted(number[component] for component in path) for path, _, _ in rows]
    made = window(
        np.concatenate([[0], np.cumsum([len(crossed) for crossed in lists])]),
        np.array([place for crossed in lists for place in crossed], np.int64),
        [n for _, n, _ in rows],
        [e for _, _, e in rows],
        component_ids=np.arange(len(components)),
        tiers=[tier for tier, _ in components],
        source=source,
    )
    return Named(made, components)


def together(paths: Iterable[Counted]) -> Iterator[Counted]:
    """Add up the units and failures of equal paths.

    Solvers that take a path for one observation (Deepview, NetBouncer, SCORE) need this: a path written as 300 rows of
    one unit has rates of 0 and 1 only. For binomial likelihoods without overdispersion it changes nothing but the time.
    """
    counts: dict[Path, tuple[int, int]] = {}
    for path, units, failures in paths:
        n, e = counts.get(path, (0, 0))
        counts[path] = n + units, e + failures
    yield from ((path, n, e) for path, (n, e) in counts.items())
