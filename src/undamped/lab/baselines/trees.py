"""Decision trees of scikit-learn as arrays, and their values without scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, equal

TREE_ARRAYS = ("roots", "feature", "threshold", "branches", "value")


def tree_arrays(trees: Sequence[Any], values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the trees of an ensemble of scikit-learn as arrays; a leaf is its own child.

    Args:
        trees: The attributes `DecisionTreeRegressor.tree_`.
        values: The value of every node (nodes,), for each tree.

    Returns:
        roots (trees,), and for every node: feature and threshold (nodes,), branches (nodes, 2),
        the first where the feature is not above the threshold, and value (nodes,).
    """
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    branches, features, thresholds = [], [], []
    for start, tree in zip(starts, trees, strict=False):
        nodes = np.arange(tree.node_count)
        children = np.stack((tree.children_left, tree.children_right), 1)
        leaf = children[:, :1] < 0
        branches.append(start + np.where(leaf, nodes[:, None], children))
        features.append(np.where(leaf[:, 0], 0, tree.feature))
        thresholds.append(tree.threshold)
    arrays = map(np.concatenate, (features, thresholds, branches, values))
    return dict(zip(TREE_ARRAYS, (starts[:-1], *arrays), strict=True))


def tree_values(
    x: Tensor, roots: Tensor, feature: Tensor, threshold: Tensor, branches: Tensor, value: Tensor
) -> Tensor:
    """Return the value of every tree for every sample, (samples, trees).

    Args:
        x: (samples, features); they are compared as float32, as in scikit-learn.
        roots: (trees,) the first node of each tree.
        feature: (nodes,).
        threshold: (nodes,).
        branches: (nodes, 2) the children of each node.
        value: (nodes,).
    """
    x = x.float().to(threshold.dtype)
    node = roots.expand(len(x), -1)
    while True:
        above = x.gather(1, feature[node]) > threshold[node]
        following = branches[node, above.long()]
        if equal(following, node):
            return value[node]
        node = following
