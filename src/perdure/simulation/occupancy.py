"""How much of a cluster was in use as a simulation went on: of its GPUs, and of its nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.simulation.result import SpanLog

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Stretches of time between two changes, as columns of one length."""

    lasts_s: Floats
    gpus: Floats  # share of the GPUs that jobs held
    nodes: Floats  # share of the nodes of which a job held some GPU

    def mean_gpus(self) -> float:
        return _mean(self.gpus, self.lasts_s)

    def mean_nodes(self) -> float:
        return _mean(self.nodes, self.lasts_s)

    def free_nodes_while(self, least: float, most: float) -> float:
        """The mean share of wholly free nodes while a share of the GPUs from `least` to `most` is in use.

        NaN where it never is.
        """
        then = (self.gpus >= least) & (self.gpus <= most)
        return 1 - _mean(self.nodes[then], self.lasts_s[then])


def occupancy(spans: SpanLog, cluster: Cluster, until_s: float) -> Occupancy:
    """The use of a cluster from the first start until `until_s`; jobs must have been placed on nodes."""
    counts = [len(shares) for shares in spans.shares]
    node, gpus = np.array([share for shares in spans.shares for share in shares], np.int64).reshape(-1, 2).T
    at_s = np.concatenate([np.repeat(spans.start_s, counts), np.repeat(spans.end_s, counts)])
    node, step = np.tile(node, 2), np.concatenate([gpus, -gpus])
    order = np.lexsort((at_s, node))
    at_s, node, step = at_s[order], node[order], step[order]
    held = np.cumsum(step)  # of this node: the nodes before it have given all back
    was = held - step
    instants, place = np.unique(at_s, return_inverse=True)
    in_use = np.cumsum(np.bincount(place, step, len(instants)))
    nodes = np.cumsum(np.bincount(place, (held > 0).astype(float) - (was > 0), len(instants)))
    lasts_s = np.diff(np.minimum(np.append(instants, until_s), until_s))
    return Occupancy(lasts_s, in_use / cluster.total_gpus, nodes / len(cluster))


def _mean(values: Floats, weights: Floats) -> float:
    return float(np.average(values, weights=weights)) if weights.sum() > 0 else np.nan
