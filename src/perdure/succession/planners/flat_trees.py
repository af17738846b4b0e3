"""Trees one behind the other, as arrays: what a forest or a booster has learned, served by NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlatTrees:
    """Nodes of all trees; a leaf is its own child, and a child comes after its parent."""

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats

    @classmethod
    def of_sklearn(cls, grown: Sequence[Any]) -> FlatTrees:
        """Of trees as scikit-learn has them."""
        counts = [tree.node_count for tree in grown]
        roots = np.concatenate([[0], np.cumsum(counts)])[:-1].astype(np.int64)
        left, right = (
            np.concatenate([
                np.where(child < 0, np.arange(len(child)), child) + root
                for child, root in ((getattr(tree, side), root) for tree, root in zip(grown, roots, strict=True))
            ]).astype(np.int64)
            for side in ("children_left", "children_right")
        )  # fmt: skip
        feature = np.concatenate([np.maximum(tree.feature, 0) for tree in grown]).astype(np.int64)
        threshold = np.concatenate([tree.threshold for tree in grown])
        return cls(roots, feature, threshold, left, right, np.concatenate([tree.value[:, 0, 0] for tree in grown]))

    @classmethod
    def of_lightgbm(cls, model: Any) -> FlatTrees:
        """Of a model that LightGBM has trained on numbers, none of them missing."""
        rows: list[list[float]] = []

        def lay(node: Mapping[str, Any]) -> int:
            own = len(rows)
            rows.append([0, 0.0, own, own, node.get("leaf_value", 0.0)])
            if "split_feature" in node:
                rows[own][:2] = [node["split_feature"], node["threshold"]]
                rows[own][2], rows[own][3] = lay(node["left_child"]), lay(node["right_child"])
            return own

        roots = [lay(tree["tree_structure"]) for tree in model.dump_model()["tree_info"]]
        columns = np.array(rows, np.float64).T
        feature, left, right = (columns[each].astype(np.int64) for each in (0, 2, 3))
        return cls(np.array(roots, np.int64), feature, columns[1], left, right, columns[4])

    def values(self, row: NDArray[np.floating]) -> Floats:
        """(n_trees,) what each tree says."""
        node = self.roots
        while True:
            below = np.where(row[self.feature[node]] <= self.threshold[node], self.left[node], self.right[node])
            if (below == node).all():
                return self.value[node]
            node = below

    def arrays(self) -> dict[str, Floats]:
        """By name, all of one kind."""
        return {name: getattr(self, name).astype(np.float64) for name in self.__slots__}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats], width: int) -> FlatTrees:
        """Raises `ValueError` and `KeyError` for what are no trees over rows of this width."""
        whole = {name: arrays[name].astype(np.int64) for name in ("roots", "feature", "left", "right")}
        found = cls(threshold=arrays["threshold"], value=arrays["value"], **whole)
        n = len(found.value)
        if not n or any(each.shape != (n,) for each in (found.feature, found.threshold, found.left, found.right)):
            raise ValueError("columns of nodes differ in length")
        own = np.arange(n)
        for side in (found.left, found.right):
            if (side < own).any() or (side >= n).any():
                raise ValueError("a node comes before its parent")
        if found.roots.ndim != 1 or not len(found.roots) or (found.roots < 0).any() or (found.roots >= n).any():
            raise ValueError("a root is not a node")
        if (found.feature < 0).any() or (found.feature >= width).any():
            raise ValueError("a node asks for a number that there is not")
        return found
