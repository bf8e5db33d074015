"""What a stream is fed: one sample, of the shape and type the stream was made for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import ShapeError, explain


def fitting(x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a sample that does not fit at once in the type of a stream, or refuse it.

    Mixed precision may hand over fewer bits than a stream carries: they are taken as they are.

    Args:
        x: The sample, (batch, input), or (input,) of a single stream.
        shape: (batch, input).
        dtype: The type of the network's parameters.
    """
    if not isinstance(x, Tensor):
        expected, got = "a tensor", f"{type(x).__module__}.{type(x).__name__}"
        remedy = f"Convert it, e.g. by torch.as_tensor(x, dtype={dtype})."
    elif x.shape != shape and not (shape[0] == 1 and x.shape == shape[1:]):
        expected, got = f"shape {tuple(shape)}", tuple(x.shape)
        remedy = "The stream's batch size is fixed when it is made."
    elif x.dtype == dtype or torch.is_autocast_enabled(x.device.type):
        return x.to(dtype)
    else:
        expected, got = f"{dtype}, the type of the parameters", x.dtype
        remedy = "Convert the sample by .to(dtype)."
    raise ShapeError(explain("a sample of a stream", expected=expected, got=got, remedy=remedy))
