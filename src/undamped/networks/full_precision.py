"""Keeping the walk through time out of mixed precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence


def in_full_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a method out of mixed precision.

    What a network carries over thousands of steps would be lost in the eight bits of a bfloat16,
    so mixed precision stops at its door: what is around it may be rounded, the walk through time
    is not.
    """

    @functools.wraps(method)
    def run(self: nn.Module, input: Any, *arguments: Any, **named: Any) -> Any:
        packed = isinstance(input, PackedSequence)
        kind = (input.data if packed else input).device.type
        if not torch.is_autocast_enabled(kind):
            return method(self, input, *arguments, **named)
        with torch.autocast(kind, enabled=False):
            whole = input.to(next(self.parameters()).dtype)
            return method(self, whole, *arguments, **named)

    return run
