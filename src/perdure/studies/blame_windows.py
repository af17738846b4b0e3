"""Windows with known culprits, drawn for tests and benchmarks: a folded Clos tree, a probed fabric, training jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.blame.window import Floats, Window, window

SCENARIOS = (
    "none", "burst", "tor", "storage", "storage-gray", "agg", "spine-gray", "mixed", "masked", "tors-of-a-group",
    "sparse", "part-of-paths", "links", "jobs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Culprit:
    """What was broken on purpose."""

    component: int
    rate: float  # a unit that crosses it fails with this chance
    share: float  # of its paths that are affected
    strength: float  # log likelihood ratio of it given the others and the background; below 12 nobody can find it


@dataclass(frozen=True, slots=True)
class Drawn:
    """A window and the truth about it, for scoring a solver. To name an equivalent component is to find the culprit."""

    window: Window
    culprits: tuple[Culprit, ...]


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Paths and components before anything fails: row i of `crossed` lists the columns of path i."""

    crossed: list[NDArray[np.int64]]
    units: NDArray[np.int64]
    tiers: NDArray[np.str_]

    def of(self, tier: str) -> NDArray[np.intp]:
        """The columns of one tier."""
        return np.flatnonzero(self.tiers == tier)


def draw(scenario: str, rng: Generator, *, clusters: int = 12, tors: int = 20) -> Drawn:
    """One window of a scenario; `clusters` x `tors` says how large (``jobs``: as many nodes).

    The background is drawn too: 10^-4.3 to 10^-2.5 of the units of a tree, more in ``burst``, less of probes and steps;
    it varies from path to path by a gamma law of shape 0.2 to 4. In half of the trees 2 % of the failures are booked on
    a wrong path. Windows share the binomial model with `Greedy`, `Flock` and their kin, which favours them: a figure
    measured here says little about faults that are correlated in time.

    Raises `KeyError` for a scenario that is not in `SCENARIOS`.
    """
    sparse = 0.05 if scenario == "sparse" else 1.0
    if scenario == "links":
        layout = _fabric(clusters, rng)
    elif scenario == "jobs":
        layout = _jobs(clusters * tors, rng)
    else:
        layout = _tree(clusters, tors, sparse, rng)
    chosen = _CHOOSE[scenario](layout, rng)
    exact = scenario in ("links", "jobs")
    low, high = (-5.0, -3.7) if exact else (-2.7, -2.0) if scenario == "burst" else (-4.3, -2.5)
    background = 10 ** rng.uniform(low, high)
    shape = float(rng.choice([0.2, 0.5, 1.0, 4.0]))
    return _fail(layout, chosen, background, shape, misbooked=0.02 * rng.integers(2) * (not exact), rng=rng)


def _tree(clusters: int, tors: int, density: float, rng: Generator) -> ClusterLayout:
    """ToR, aggregation group, spine group, storage cluster; VMs heavy-tailed over the storage that a cluster mounts.

    A pair of compute and storage cluster always takes the same spine group, as after folding ECMP groups.
    """
    spines, stores = max(2, clusters * 2 // 3), clusters * 7 // 3
    agg, spine = clusters * tors, clusters * tors + clusters
    store = spine + spines
    crossed, units = [], []
    for cluster in range(clusters):
        mounts = rng.choice(stores, size=int(rng.integers(4, max(5, stores * 2 // 3))), replace=False)
        share = rng.dirichlet(np.full(len(mounts), rng.uniform(0.05, 3)))
        for tor in range(tors):
            for mount, n in zip(mounts, rng.poisson(density * rng.integers(60, 350) * share), strict=True):
                if n:
                    ids = (
                        cluster * tors + tor,
                        agg + cluster,
                        spine + (cluster * 7 + mount * 3) % spines,
                        store + mount,
                    )
                    crossed.append(np.array(ids))
                    units.append(n)
    tiers = np.repeat(["tor", "agg", "spine", "storage"], [agg, clusters, spines, stores])
    return ClusterLayout(crossed, np.array(units), tiers)


def _fabric(pods: int, rng: Generator) -> ClusterLayout:
    """Probes from a leaf up to a core and back: links and devices on the way, about 200 probes a path."""
    leaves, aggs, cores = 6, 4, 8
    leaf, agg = 0, pods * leaves
    core = agg + pods * aggs
    low = core + cores  # links leaf-agg, then agg-core
    high = low + pods * leaves * aggs
    crossed = []
    for pod in range(pods):
        for one in range(leaves):
            for up in range(aggs):
                for top in range(up * cores // aggs, (up + 1) * cores // aggs):
                    device = pod * aggs + up
                    link = low + (pod * leaves + one) * aggs + up
                    crossed.append(np.array([leaf + pod * leaves + one, agg + device, core + top, link,
                                             high + device * (cores // aggs) + top % (cores // aggs)]))  # fmt: skip
    counts = [pods * leaves, pods * aggs, cores, pods * leaves * aggs, pods * cores]
    tiers = np.repeat(["leaf", "agg", "core", "link-low", "link-high"], counts)
    return ClusterLayout(crossed, rng.poisson(200, len(crossed)) + 1, tiers)


def _jobs(nodes: int, rng: Generator) -> ClusterLayout:
    """The nodes, leaves and spines of training jobs; units are their steps, 50 to 499.

    Jobs have 1 to 64 nodes, half of them with consecutive numbers and half scattered. Node i is under leaf
    ``i mod n_leaves``; a job under one leaf crosses no spine.
    """
    leaves, spines = max(2, nodes // 16), 4
    crossed = []
    for _ in range(nodes * 3 // 2):
        size = min(nodes, int(2 ** rng.integers(0, 7)))
        used = (
            (int(rng.integers(nodes)) + np.arange(size)) % nodes
            if rng.random() < 0.5
            else rng.permutation(nodes)[:size]
        )
        under = np.unique(used % leaves)
        climbing = int(rng.integers(1, spines + 1)) if len(under) > 1 else 0
        over = rng.choice(spines, size=climbing, replace=False)
        crossed.append(np.concatenate([used, nodes + under, nodes + leaves + over]))
    tiers = np.repeat(["node", "leaf", "spine"], [nodes, leaves, spines])
    return ClusterLayout(crossed, rng.integers(50, 500, len(crossed)), tiers)


Chosen = list[tuple[int, float, float]]  # component, rate, share of paths
_Choose = Callable[[ClusterLayout, Generator], Chosen]


def _some(tier: str, low: float, high: float, most: int = 1) -> _Choose:
    """One to `most` components of a tier with rates between the bounds, evenly in their logarithm."""

    def choose(layout: ClusterLayout, rng: Generator) -> Chosen:
        found = rng.choice(layout.of(tier), size=int(rng.integers(1, most + 1)), replace=False)
        return [(int(one), float(np.exp(rng.uniform(np.log(low), np.log(high)))), 1.0) for one in found]

    return choose


def _several(*choices: _Choose) -> _Choose:
    """The choices of several choosers together."""
    return lambda layout, rng: [one for choose in choices for one in choose(layout, rng)]


def _any(*choices: _Choose) -> _Choose:
    """The choice of one chooser, drawn evenly."""
    return lambda layout, rng: choices[int(rng.integers(len(choices)))](layout, rng)


def _tors_of_a_group(layout: ClusterLayout, rng: Generator) -> Chosen:
    """Two to five hard ToRs of one aggregation group: a solver is tempted to blame the group."""
    tors = layout.of("tor")
    each = len(tors) // len(layout.of("agg"))
    group = tors[each * int(rng.integers(len(tors) // each)) :][:each]
    found = rng.choice(group, size=min(each, int(rng.integers(2, 6))), replace=False)
    return [(int(one), float(rng.uniform(0.4, 0.9)), 1.0) for one in found]


def _part(layout: ClusterLayout, rng: Generator) -> Chosen:
    """A black hole: one component that fails hard, on 5 to 30 % of its paths only."""
    tier = str(rng.choice(["agg", "spine", "storage"]))
    return [(int(rng.choice(layout.of(tier))), float(rng.uniform(0.4, 1.0)), float(rng.uniform(0.05, 0.3)))]


_CHOOSE: dict[str, _Choose] = {
    "none": lambda _, __: [],
    "burst": lambda _, __: [],
    "tor": _some("tor", 0.3, 0.95, 3),
    "storage": _some("storage", 0.3, 0.95),
    "storage-gray": _some("storage", 0.006, 0.13, 2),
    "agg": _some("agg", 0.1, 0.8),
    "spine-gray": _some("spine", 0.003, 0.05),
    "mixed": _several(_some("tor", 0.06, 0.9, 2), _some("storage", 0.008, 0.5), _some("spine", 0.01, 0.5)),
    "masked": _several(_some("agg", 0.1, 0.5), _some("storage", 0.01, 0.07), _some("spine", 0.007, 0.04)),
    "tors-of-a-group": _any(_tors_of_a_group, _some("agg", 0.05, 0.1)),
    "sparse": _several(_some("storage", 0.2, 0.35), _some("agg", 0.08, 0.2)),
    "part-of-paths": _part,
    "links": _any(_some("leaf", 0.002, 0.05), _some("core", 0.002, 0.02), _some("link-low", 0.005, 0.3, 2)),
    "jobs": _any(_some("node", 0.004, 0.06, 3), _some("leaf", 0.005, 0.04), _some("spine", 0.005, 0.02)),
}


def _fail(
    layout: ClusterLayout, chosen: Chosen, background: float, shape: float, misbooked: float, rng: Generator
) -> Drawn:
    """Draw the failures of each path, and book the share `misbooked` of them on paths that had no part in them.

    Hazards add: ``e_i ~ Binomial(n_i, 1 - exp(-(background g_i + sum of the culprits' -log(1 - rate))))``. Strengths
    are taken before misbooking, with the true hazards.
    """
    n = layout.units
    base = background * rng.gamma(shape, 1 / shape, len(n))
    lost = base.copy()
    sizes = np.array([len(crossed) for crossed in layout.crossed])
    row_of = np.repeat(np.arange(len(n)), sizes)
    flat = np.concatenate(layout.crossed)
    hits = []
    for component, rate, share in chosen:
        rows = row_of[flat == component]
        rows = rows if share == 1 else rng.choice(rows, size=max(2, round(share * len(rows))), replace=False)
        hits.append(rows)
        lost[rows] -= np.log1p(-rate)
    e = rng.binomial(n, -np.expm1(-lost))
    strengths = [_strength(n, e, lost, rows, rate, background) for rows, (_, rate, _) in zip(hits, chosen, strict=True)]
    astray = rng.binomial(e, misbooked)
    e = e - astray
    np.add.at(e, rng.integers(len(n), size=int(astray.sum())), 1)
    made = window(
        np.concatenate([[0], np.cumsum(sizes)]), flat, n, np.minimum(e, n),
        component_ids=np.arange(len(layout.tiers)), tiers=layout.tiers, source="<drawn>",
    )  # fmt: skip
    culprits = (Culprit(c, r, s, strength) for (c, r, s), strength in zip(chosen, strengths, strict=True))
    return Drawn(made, tuple(culprits))


def _strength(
    n: NDArray[np.int64], e: NDArray[np.int64], lost: Floats, rows: NDArray[np.int64], rate: float, background: float
) -> float:
    """Log likelihood ratio of the failures with and without this culprit, all else at its true value, in nats.

    It is the evidence for one who knows all else; where it is below the price of naming a component, missing it is
    right.
    """

    def told(hazard: Floats) -> float:
        return float((e[rows] * np.log(np.expm1(np.maximum(hazard, 1e-12))) - n[rows] * hazard).sum())

    without = np.maximum(lost[rows] + np.log1p(-rate), background)
    return told(lost[rows]) - told(without)
