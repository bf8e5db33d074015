"""Data-controlled and adaptive-depth neural ODEs (Massaroli and others, 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt


class Controlled(nn.Module):
    """A field that also sees the input it started from, for one solve.

    Equation:
        ż = f(s, [z, x])

    Symbols:
        z state, x input, s depth.

    Args:
        field: f, a module called with (s, (…, state + input)).
        control: x.

    Example:
        >>> x = torch.randn(5, 2)
        >>> model.solve(x, field=Controlled(field, x))

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    def __init__(self, field: nn.Module, control: Tensor) -> None:
        super().__init__()
        self.field = field
        self.control = control

    def context_tensors(self) -> list[Tensor]:
        """Name what gradients must reach besides the parameters."""
        return [self.control]

    def reading(self, tensors: Sequence[Tensor]) -> Controlled:
        """Return the same field with another tensor in place of the control."""
        (control,) = tensors
        return Controlled(self.field, control)

    def forward(self, t: Any, z: Tensor) -> Tensor:
        """Return dz/ds."""
        return self.field(t, torch.cat((z, self.control), dim=-1))


class DepthNetwork(nn.Module):
    """The depth g_ω(x) to which a sample is integrated: positive, learned from the sample.

    Equation:
        ŷ = z + ∫₀^{g_ω(x)} f(τ, z) dτ,  g_ω(x) = softplus(linear(x))

    Symbols:
        x input, g_ω depth.

    Args:
        input_size: Features of the input.
        start: Depth every sample has at first, about.

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(self, input_size: PositiveInt, start: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, 1)
        with torch.no_grad():
            self.layer.weight.mul_(0.1)
            self.layer.bias.fill_(float(torch.log(torch.expm1(torch.tensor(start)))))

    def forward(self, x: Tensor) -> Tensor:
        """Return depths (batch,)."""
        return softplus(self.layer(x)).squeeze(-1)

    def times(self, x: Tensor) -> Tensor:
        """Return start and end for every sample, (2, batch), as `solve` takes them."""
        depth = self(x)
        return torch.stack((torch.zeros_like(depth), depth))
