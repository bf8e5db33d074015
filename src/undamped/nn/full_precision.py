"""Keeping the walk through time out of mixed precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import ShapeError, explain


def in_full_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a method out of mixed precision.

    What a network carries over thousands of steps would be lost in the eight bits of a bfloat16,
    so mixed precision stops at its door: what is around it may be rounded, the walk through time
    is not.
    """

    @functools.wraps(method)
    def run(self: nn.Module, input: Any, *arguments: Any, **named: Any) -> Any:
        tensor = input.data if isinstance(input, PackedSequence) else input
        if not isinstance(tensor, Tensor):
            raise ShapeError(
                explain(
                    f"{type(self).__name__} input",
                    expected="a tensor or a PackedSequence",
                    got=f"{type(input).__module__}.{type(input).__name__}",
                    remedy="Convert it, e.g. by torch.as_tensor(x, dtype=torch.float32).",
                )
            )
        kind = tensor.device.type
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return method(self, input, *arguments, **named)
        with torch.autocast(kind, enabled=False):
            whole = input.to(next(self.parameters()).dtype)
            return method(self, whole, *arguments, **named)

    return run
