"""What scans and streams check before a kernel reads memory by the sizes it was told."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import ShapeError
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
                f"{name}: {argument} must have shape {shape}, to fit the inputs; "
                f"got {tuple(tensor.shape)}."
            )


def check_lengths(name: str, lengths: Tensor | None, steps: int, batch: int) -> None:
    """Refuse lengths that are not one whole number from 0 to `steps` for each sequence."""
    if lengths is None:
        return
    integers = not (
        lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool
    )
    fits = integers and tuple(lengths.shape) == (batch,)
    if fits and batch and not through_operator(lengths) and not inside_transform():
        fits = int(lengths.min()) >= 0 and int(lengths.max()) <= steps
    if not fits:
        shaped = integers and tuple(lengths.shape) == (batch,)
        got = lengths.tolist() if shaped else f"{lengths.dtype} of shape {tuple(lengths.shape)}"
        raise ShapeError(
            f"{name}: lengths must be {batch} whole numbers from 0 to {steps}, one per sequence; "
            f"got {got}."
        )


def fitting(x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a sample that does not fit at once in the type of a stream, or refuse it.

    Mixed precision may hand over fewer bits than a stream carries: they are taken as they are.

    Args:
        x: The sample, (batch, input), or (input,) of a single stream.
        shape: (batch, input).
        dtype: The type of the network's parameters.
    """
    if not isinstance(x, Tensor):
        raise ShapeError(
            f"A sample of a stream must be a tensor, got {type(x).__module__}.{type(x).__name__}. "
            f"Convert it, e.g. by torch.as_tensor(x, dtype={dtype})."
        )
    if x.shape != shape and not (shape[0] == 1 and x.shape == shape[1:]):
        raise ShapeError(
            f"A sample of this stream must have shape {tuple(shape)}, got {tuple(x.shape)}. "
            "The batch size is fixed when the stream is made."
        )
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise ShapeError(
            f"A sample of this stream must be {dtype}, as the parameters are; got {x.dtype}. "
            "Convert it by .to(dtype)."
        )
    return x.to(dtype)
