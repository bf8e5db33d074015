"""What a stream is fed: one sample, of the shape and type the stream was made for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import ShapeError


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
