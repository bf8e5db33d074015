"""Regression trees as arrays: every tree of an ensemble, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

NAMES = ("roots", "feature", "threshold", "branches", "value")


def tree_arrays(trees: list[Any], factor: float) -> dict[str, np.ndarray]:
    """Return trees of scikit-learn as arrays; a leaf is its own child.

    Args:
        trees: What `DecisionTreeRegressor.tree_` holds.
        factor: What every value is multiplied with.

    Returns:
        roots (trees,), and of every node: feature and threshold (nodes,), branches (nodes, 2),
        left where the feature is not above the threshold, and value (nodes,).
    """
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    branches, features, thresholds, values = [], [], [], []
    for start, tree in zip(starts, trees, strict=False):
        own = np.arange(tree.node_count)
        both = np.stack((tree.children_left, tree.children_right), 1)
        leaf = both[:, :1] < 0
        branches.append(start + np.where(leaf, own[:, None], both))
        features.append(np.where(leaf[:, 0], 0, tree.feature))
        thresholds.append(tree.threshold)
        values.append(factor * tree.value[:, 0, 0])
    return {
        "roots": starts[:-1],
        "feature": np.concatenate(features),
        "threshold": np.concatenate(thresholds),
        "branches": np.concatenate(branches),
        "value": np.concatenate(values),
    }


def tree_values(
    x: Tensor, roots: Tensor, feature: Tensor, threshold: Tensor, branches: Tensor, value: Tensor
) -> Tensor:
    """Return what every tree says to every sample, (samples, trees).

    Args:
        x: (samples, features); they are compared as float32, as scikit-learn does.
        roots: (trees,) the first node of each.
        feature: (nodes,) what is asked there.
        threshold: (nodes,) and where it parts.
        branches: (nodes, 2) where to go on.
        value: (nodes,).
    """
    x = x.float().to(threshold.dtype)
    node = roots.expand(len(x), -1)
    while True:
        above = x.gather(1, feature[node]) > threshold[node]
        following = branches[node, above.long()]
        if torch.equal(following, node):
            return value[node]
        node = following
