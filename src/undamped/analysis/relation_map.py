"""What a relational network sees of a trial: the matrix R of similarities, beside the pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, numbers
from undamped.analysis.core.unrolled import evaluating

Array = NDArray[Any]
TRIALS = 3
"""How many trials are drawn."""
WIDTH = 120
"""Pixels of the picture of one trial, or a few more."""


@instruments.register("relations")
@dataclass(frozen=True)
class RelationMap(Result):
    """The matrix R of a few trials, with the pictures along its edges.

    `matrices[k]` is R of trial k, `pictures[k]` its pictures in grey; `same` and `different` are
    the mean of R between a picture and an earlier one that is equal to it, and one that is not.
    """

    question = "Which pictures does the network take for the same?"
    place = 15

    matrices: Array
    pictures: Array
    same: float
    different: float
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> RelationMap:
        """Look at the first trials of the inputs."""
        if not hasattr(probe.model, "relation_matrix") or not probe.of_pictures:
            raise InapplicableError("it does not compare pictures in a matrix")
        return relations(probe.model, probe.inputs, name=probe.name)

    @property
    def sentence(self) -> str:
        """How R tells equal pictures from others."""
        apart = f"{self.different:.3f} where they differ"
        if not np.isfinite(self.same):
            return f"R between a picture and an earlier one is {apart}, on average."
        return (
            f"R between a picture and an earlier one is {self.same:.3f} on average where the two "
            f"are equal, and {apart}."
        )

    @property
    def layout(self) -> Layout:
        """Pictures above and to the left of their matrix."""
        return Layout(
            "What is compared with what",
            "earlier picture j, trial after trial",
            "picture i",
            "Above and to the left the pictures of a trial; inside R, bright where picture i is "
            "taken for picture j.",
            equal=True,
            downwards=True,
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The trials side by side, of the first model alone."""
        if style.index:
            return []
        blocks = [framed(*pair) for pair in zip(self.matrices, self.pictures, strict=True)]
        gap = np.full((len(blocks[0]), max(2, len(blocks[0]) // 12)), np.nan)
        row: list[Array] = []
        for block in blocks:
            row += [block, gap]
        shown = np.concatenate(row[:-1], 1)
        side = self.pictures.shape[-1]
        return [
            {
                "type": "heatmap",
                "x": numbers(np.arange(shown.shape[1]) / side),
                "y": numbers(np.arange(shown.shape[0]) / side),
                "z": [numbers(np.round(line, 3)) for line in shown],
                "colorscale": "Cividis",
                "zmin": 0,
                "zmax": 1,
                "colorbar": {"title": {"text": "R, and light"}},
                "hoverinfo": "skip",
                "meta": style.index,
            }
        ]


def framed(matrix: Array, pictures: Array) -> Array:
    """Return a matrix blown up, with pictures along its upper and its left edge.

    Args:
        matrix: (time, time) similarities.
        pictures: (time, height, width) in grey, as high as wide.
    """
    count, side = len(matrix), pictures.shape[-1]
    low, high = min(0.0, matrix.min()), max(1.0, matrix.max())
    shown = np.full(((count + 1) * side, (count + 1) * side), np.nan)
    shown[side:, side:] = np.kron((matrix - low) / (high - low), np.ones((side, side)))
    for place, picture in enumerate(pictures, start=1):
        part = slice(place * side, (place + 1) * side)
        shown[:side, part] = shown[part, :side] = picture
    return shown


def relations(
    model: nn.Module, inputs: Tensor | Batch, *, trials: int = TRIALS, name: str = ""
) -> RelationMap:
    """Read the matrix R of a relational network.

    Args:
        model: A network with a `relation_matrix`, such as `CoRelNet`.
        inputs: Pictures (time, batch, channels, height, width), or a batch of them.
        trials: How many trials are shown; all count for the means.
        name: What to call it.
    """
    matrix_of = getattr(model, "relation_matrix", None)
    if matrix_of is None:
        raise OptionError(
            explain(
                type(model).__name__,
                expected="a network that compares pictures in a matrix",
                got="one without",
                remedy="For example undamped.models.CoRelNet.",
            )
        )
    batch = inputs if isinstance(inputs, Batch) else Batch(inputs)
    with evaluating(model), torch.no_grad():
        matrix = matrix_of(model.encode(batch)).double().cpu()  # type: ignore[operator]
    pictures = batch.expanded().inputs
    flat = pictures.flatten(2).transpose(0, 1)
    equal = (flat.unsqueeze(1) == flat.unsqueeze(2)).all(-1).cpu()
    earlier = torch.ones_like(equal[0]).tril(-1)
    alike, unlike = matrix[equal & earlier], matrix[~equal & earlier]
    side = max(4, WIDTH // (len(pictures) + 1))
    grey = pictures[:, :trials].double().mean(2).transpose(0, 1)
    grey = grey / 255 if pictures.dtype == torch.uint8 else grey
    return RelationMap(
        matrix[:trials].numpy(),
        adaptive_avg_pool2d(grey, side).cpu().numpy(),
        alike.mean().item(),
        unlike.mean().item(),
        name,
    )
