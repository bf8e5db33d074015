"""Checks of the arguments of scans and streams, since kernels access memory by these sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import ShapeError
from undamped.kernels.dispatch import inside_transform, runs_as_operator


def check_shapes(name: str, **shapes: tuple[Tensor, tuple[int, ...]]) -> None:
    """Raise an error if tensors have other shapes.

    Args:
        name: The function that was called.
        shapes: The tensor and its required shape, by the names of arguments.
    """
    for argument, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape:
            raise ShapeError(
                f"{name}: {argument} must have shape {shape}, to fit the inputs; "
                f"got {tuple(tensor.shape)}."
            )


def check_lengths(name: str, lengths: Tensor | None, steps: int, batch: int) -> None:
    """Raise an error unless lengths are one integer from 0 to `steps` for each sequence."""
    if lengths is None:
        return
    integers = not (
        lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool
    )
    fits = integers and tuple(lengths.shape) == (batch,)
    if fits and batch and not runs_as_operator(lengths) and not inside_transform():
        fits = int(lengths.min()) >= 0 and int(lengths.max()) <= steps
    if not fits:
        shaped = integers and tuple(lengths.shape) == (batch,)
        got = lengths.tolist() if shaped else f"{lengths.dtype} of shape {tuple(lengths.shape)}"
        raise ShapeError(
            f"{name}: lengths must be {batch} whole numbers from 0 to {steps}, one per sequence; "
            f"got {got}."
        )


def fitting(x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a sample converted for a stream, or raise an error.

    Samples in a lower precision, which come from mixed precision, are converted.

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
