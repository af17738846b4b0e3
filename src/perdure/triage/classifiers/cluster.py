"""The clustering baseline: a failure is of the kind that most failures like it were.

Leader clustering by cosine: an example joins the most similar leader if that is similar enough, or leads a cluster of
its own. The nearer a failure is to its leader and the more of one kind the cluster, the surer the model.

Sibylla (USENIX ATC 2022) compares with clustering; which one is not published. The leader algorithm: J. Hartigan,
"Clustering Algorithms", Wiley 1975, chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from perdure.errors import InputError
from perdure.triage.classifiers.features import BUCKETS, Features, features
from perdure.triage.classifiers.model_file import FIX, array_bytes, array_of, pack, unpack
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.classifiers.regression import both_kinds, calibrate, group_folds, matrix_of

NAME = "cluster"
FORMAT = 1
SIMILAR = 0.45  # cosine from which on an example joins a leader
CALIBRATION_FOLDS = 5
PRIOR = 0.5  # examples of each kind that a cluster is thought to have had before
PARTS = ("values.npy", "columns.npy", "starts.npy", "rarity.npy", "counts.npy", "scalars.npy")


@dataclass(frozen=True)
class Clusters:
    """The leaders, and how many examples of each kind joined them."""

    leaders: Any  # sparse, shape (n_clusters, BUCKETS), rows of unit length
    rarity: NDArray[np.float32]  # (BUCKETS,): inverse document frequency at the first training
    counts: NDArray[np.float64]  # (n_clusters, 2): deterministic, transient
    slope: float  # of the calibration: log-odds = slope * score + offset
    offset: float

    def log_odds(self, reading: Reading) -> float:
        """Natural log-odds that the failure is transient, as if both kinds were equally frequent."""
        return self.slope * self.score(_unit(features(reading), self.rarity)) + self.offset

    def score(self, vector: Features) -> float:
        """The balance of kinds in the nearest cluster, from -1 (all deterministic) to 1, times the similarity."""
        leader, similarity = _nearest(self.leaders, vector)
        deterministic, transient = (self.counts[leader] + PRIOR) / (self.counts.sum(axis=0) + PRIOR)
        return similarity * float((transient - deterministic) / (transient + deterministic))

    def update(self, examples: Sequence[Example]) -> Clusters:
        """The clusters after these joined too; rarity and calibration stay."""
        return _joined(self, examples)

    def save(self) -> bytes:
        """The bytes of the model's file; equal models give equal bytes."""
        arrays = (
            self.leaders.data.astype(np.float32),
            self.leaders.indices.astype(np.int32),
            self.leaders.indptr.astype(np.int64),
            self.rarity,
            self.counts,
            np.array([self.slope, self.offset]),
        )
        return pack(NAME, FORMAT, dict(zip(PARTS, map(array_bytes, arrays), strict=True)))


class ClusterClassifier:
    """A baseline: learns by heart."""

    name = NAME

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Clusters:  # noqa: ARG002  (nothing is drawn)
        """Cluster the examples in their order; calibrate on groups that were held out. Raises `InputError`."""
        transient = both_kinds(examples)
        held_out = np.zeros(len(examples))
        for test in group_folds([example.group for example in examples], CALIBRATION_FOLDS):
            if not test.all():
                clusters = _clustered([each for each, left_out in zip(examples, test, strict=True) if not left_out])
                held_out[test] = [
                    clusters.score(_unit(features(each.reading), clusters.rarity))
                    for each, left_out in zip(examples, test, strict=True)
                    if left_out
                ]
        slope, offset = calibrate(held_out, transient)
        return replace(_clustered(examples), slope=slope, offset=offset)

    def load(self, data: bytes, source: str) -> Clusters:
        """Read what `Clusters.save` wrote. Raises `InputError` for anything else."""
        parts = unpack(data, source, NAME, FORMAT, PARTS)
        values, columns, starts, rarity, counts, scalars = (array_of(parts[name]) for name in PARTS)
        try:
            leaders = sparse.csr_matrix((values, columns, starts), shape=(len(counts), BUCKETS))
            leaders.check_format(full_check=True)
            slope, offset = map(float, scalars)
        except (ValueError, TypeError) as err:
            raise InputError(source, f"the arrays in the model file do not fit together ({err})", FIX) from err
        return Clusters(leaders, rarity, counts, slope, offset)


CLUSTER = ClusterClassifier()


def _clustered(examples: Sequence[Example]) -> Clusters:
    """Clusters of these examples, not calibrated."""
    seen = np.zeros(BUCKETS)
    for example in examples:
        seen[features(example.reading).columns] += 1
    rarity = (np.log((1.0 + len(examples)) / (1.0 + seen)) + 1.0).astype(np.float32)
    none = sparse.csr_matrix((0, BUCKETS), dtype=np.float32)
    return _joined(Clusters(none, rarity, np.zeros((0, 2)), 1.0, 0.0), examples)


def _joined(clusters: Clusters, examples: Sequence[Example]) -> Clusters:
    leaders, counts = clusters.leaders, [row.copy() for row in clusters.counts]
    for example in examples:
        vector = _unit(features(example.reading), clusters.rarity)
        leader, similarity = _nearest(leaders, vector)
        if similarity < SIMILAR:
            leader = len(counts)
            leaders = sparse.vstack([leaders, matrix_of([vector])], format="csr", dtype=np.float32)
            counts.append(np.zeros(2))
        counts[leader][int(example.transient)] += 1
    return replace(clusters, leaders=leaders, counts=np.array(counts).reshape(-1, 2))


def _nearest(leaders: Any, vector: Features) -> tuple[int, float]:
    """The most similar leader, the first among equals, and its cosine; without leaders nothing is similar."""
    if not leaders.shape[0]:
        return 0, 0.0
    dense = np.zeros(BUCKETS, dtype=np.float32)
    dense[vector.columns] = vector.values
    similarity = leaders @ dense
    leader = int(similarity.argmax())
    return leader, float(similarity[leader])


def _unit(vector: Features, rarity: NDArray[np.float32]) -> Features:
    values = vector.values * rarity[vector.columns]
    return Features(vector.columns, (values / max(1e-12, float(np.sqrt(values @ values)))).astype(np.float32))
