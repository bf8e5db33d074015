"""FFJORD's field (Grathwohl and others, 2019): layers gated and shifted by time."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt


class ConcatSquashField(nn.Module):
    """FFJORD's field: layers gated and shifted by time.

    Equation:
        layer(t, x) = (W x + b) ⊙ σ̂(g t + c) + d t

    Symbols:
        g, c gate and d shift by time; tanh between layers.

    Args:
        size: Features of the state.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        context_size: Features of a condition that is concatenated to the state.
        detail: Factor on the first layer's weights at the start. A field drawn with factor 1 is
            nearly linear over the data and takes thousands of steps to find detail such as rings
            inside rings; 3 to 6 starts with features of about their size.

    Reference:
        W. Grathwohl and others. FFJORD: free-form continuous dynamics for scalable reversible
        generative models. ICLR, 2019.
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 64,
        *,
        hidden_layers: PositiveInt = 2,
        context_size: int = 0,
        detail: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.context_size = context_size
        widths = [size + context_size] + [hidden_size] * hidden_layers + [size]
        pairs = list(itertools.pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        with torch.no_grad():
            for parameter in self.layers[0].parameters():
                parameter.mul_(detail)
        self.gates = nn.ModuleList(nn.Linear(1, b) for _, b in pairs)
        self.shifts = nn.ModuleList(nn.Linear(1, b, bias=False) for _, b in pairs)

    def forward(self, t: Any, x: Tensor) -> Tensor:
        """Return dx/dt."""
        time = torch.as_tensor(t, dtype=x.dtype, device=x.device)
        time = time.reshape(-1, *(1,) * (x.dim() - 1))  # one for all, or one a sample
        last = len(self.layers) - 1
        rows = zip(self.layers, self.gates, self.shifts, strict=True)
        for k, (layer, gate, shift) in enumerate(rows):
            x = layer(x) * torch.sigmoid(gate(time)) + shift(time)
            x = torch.tanh(x) if k < last else x
        return x
