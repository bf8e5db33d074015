"""What public scans check before a kernel reads memory by the sizes it was told."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.errors import ShapeError, explain
from undamped.kernels.dispatch import inside_transform, through_operator


def check_shapes(name: str, **shapes: tuple[Tensor, tuple[int, ...]]) -> None:
    """Refuse tensors of other shapes.

    Args:
        name: The function that was called.
        shapes: By the names of arguments, what was passed and the shape it should have.
    """
    for argument, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape:
            raise ShapeError(
                explain(
                    f"{name} {argument}",
                    expected=f"shape {shape}, to fit the inputs",
                    got=tuple(tensor.shape),
                    remedy=f"See help({name}) for the shapes.",
                )
            )


def check_lengths(name: str, lengths: Tensor | None, steps: int, batch: int) -> None:
    """Refuse lengths that are not one whole number from 0 to `steps` for each sequence."""
    if lengths is None:
        return
    whole = not (lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool)
    fits = whole and tuple(lengths.shape) == (batch,)
    if fits and batch and not through_operator(lengths) and not inside_transform():
        fits = int(lengths.min()) >= 0 and int(lengths.max()) <= steps
    if not fits:
        raise ShapeError(
            explain(
                f"{name} lengths",
                expected=f"{batch} whole numbers from 0 to {steps}, one per sequence",
                got=f"shape {tuple(lengths.shape)}, {lengths.dtype}"
                if not whole or tuple(lengths.shape) != (batch,)
                else lengths.tolist(),
                remedy="Count the true steps of each sequence.",
            )
        )
