"""The GRU as a field (De Brouwer, Simm, Arany and Moreau, 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt


class GRUField(nn.Module):
    """What a GRU without input does in a vanishing step: h moves towards a candidate.

    Equation:
        dh/dt = (1 − z) ⊙ (u − h),  r, z = σ̂(W h),  u = tanh(W_u (r ⊙ h))

    Symbols:
        h state, r reset gate, z update gate, u candidate in (−1, 1), so that a state that begins
        there stays there.

    Args:
        size: Features of the state.
        bias: Whether gates and candidate have biases; the authors' field has none.

    Example:
        >>> field = GRUField(4)
        >>> field(torch.tensor(0.0), torch.zeros(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019.
    """

    @checked
    def __init__(self, size: PositiveInt, *, bias: bool = False) -> None:
        super().__init__()
        self.gates = nn.Linear(size, 2 * size, bias=bias)
        self.candidate = nn.Linear(size, size, bias=bias)

    def forward(self, t: Any, h: Tensor) -> Tensor:
        """Return dh/dt, (…, size)."""
        reset, update = torch.sigmoid(self.gates(h)).chunk(2, dim=-1)
        return (1 - update) * (torch.tanh(self.candidate(reset * h)) - h)
