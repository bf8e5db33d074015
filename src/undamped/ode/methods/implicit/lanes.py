"""Truths for each lane of a solve, of which there is usually one."""

from __future__ import annotations

import numpy as np


def some(lanes: np.ndarray) -> bool:
    """Whether it holds for any lane; for one, a tenth of what a reduction costs."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.any())


def every(lanes: np.ndarray) -> bool:
    """Whether it holds for all lanes."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.all())
