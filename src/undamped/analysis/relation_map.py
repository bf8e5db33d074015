"""The similarity matrix R of a relational network, with the images of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import rounded
from undamped.analysis.core.unrolled import evaluating

Array = NDArray[Any]
TRIALS = 3
"""Number of trials in the figure."""
WIDTH = 120
"""Approximate number of pixels per trial in the figure."""


@instruments.register("relations")
@dataclass(frozen=True)
class RelationMap(Result):
    """The matrix R of a few trials, with the images along its edges.

    `matrices[k]` is R of trial k, `images[k]` its images in grey; `same` and `different` are the
    means of R between an image and an earlier one that is equal to it, or different.
    """

    question = "Which images does the network consider the same?"
    page_order = 15
    figure_layout = Layout(
        "Similarity of images",
        "earlier image j, trial after trial",
        "image i",
        "Above and to the left the images of a trial; inside R, bright where image i is similar to "
        "image j.",
        equal=True,
        downwards=True,
        legend=False,
    )

    matrices: Array
    images: Array
    same: float
    different: float
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> RelationMap:
        """Measure the first trials of the inputs."""
        if not hasattr(probe.model, "relation_matrix") or not probe.of_images:
            raise InapplicableError("it has no matrix of similarities between images")
        return relations(probe.model, probe.inputs, name=probe.name)

    @property
    def sentence(self) -> str:
        unequal = f"{self.different:.3f} where they differ"
        if not np.isfinite(self.same):
            return f"R between an image and an earlier one is {unequal}, on average."
        return (
            f"R between an image and an earlier one is {self.same:.3f} on average where the two "
            f"are equal, and {unequal}."
        )

    def traces(self, style: Style) -> list[Trace]:
        """The trials side by side, of the first model only."""
        if style.index:
            return []
        blocks = [framed(*pair) for pair in zip(self.matrices, self.images, strict=True)]
        gap = np.full((len(blocks[0]), max(2, len(blocks[0]) // 12)), np.nan)
        mosaic = np.concatenate([part for block in blocks for part in (block, gap)][:-1], 1)
        side = self.images.shape[-1]
        across, down = (rounded(np.arange(size) / side) for size in mosaic.shape[::-1])
        options = {"x": across, "y": down, "zmin": 0, "zmax": 1, "hoverinfo": "skip"}
        return [style.heatmap(np.round(mosaic, 3), "R, or brightness", **options)]


def framed(matrix: Array, images: Array) -> Array:
    """Return an enlarged matrix, with images along its upper and left edge.

    Args:
        matrix: (time, time) similarities.
        images: (time, height, width) in grey, square.
    """
    count, side = len(matrix), images.shape[-1]
    low, high = min(0.0, matrix.min()), max(1.0, matrix.max())
    mosaic = np.full(((count + 1) * side, (count + 1) * side), np.nan)
    mosaic[side:, side:] = np.kron((matrix - low) / (high - low), np.ones((side, side)))
    for index, image in enumerate(images, start=1):
        extent = slice(index * side, (index + 1) * side)
        mosaic[:side, extent] = mosaic[extent, :side] = image
    return mosaic


def relations(
    model: nn.Module, inputs: Tensor | Batch, *, trials: int = TRIALS, name: str = ""
) -> RelationMap:
    """Return the matrix R of a relational network.

    Args:
        model: A network with a `relation_matrix`, such as `CoRelNet`.
        inputs: Images (time, batch, channels, height, width), or a batch of them.
        trials: Number of trials in the figure; the means use all.
        name: Name of the model in figures.
    """
    matrix_of = getattr(model, "relation_matrix", None)
    if matrix_of is None:
        raise OptionError(
            f"{type(model).__name__} has no relation_matrix. Use a relational network, for example "
            "undamped.models.CoRelNet."
        )
    batch = inputs if isinstance(inputs, Batch) else Batch(inputs)
    with evaluating(model), torch.no_grad():
        matrix = matrix_of(model.encode(batch)).double().cpu()  # type: ignore[operator]
    images = batch.expanded().inputs
    flat = images.flatten(2).transpose(0, 1)
    equal = (flat.unsqueeze(1) == flat.unsqueeze(2)).all(-1).cpu()
    earlier = torch.ones_like(equal[0]).tril(-1)
    alike, unlike = matrix[equal & earlier], matrix[~equal & earlier]
    side = max(4, WIDTH // (len(images) + 1))
    grey = images[:, :trials].double().mean(2).transpose(0, 1)
    grey = grey / 255 if images.dtype == torch.uint8 else grey
    return RelationMap(
        matrix[:trials].numpy(),
        adaptive_avg_pool2d(grey, side).cpu().numpy(),
        alike.mean().item(),
        unlike.mean().item(),
        name,
    )
