"""Augmented, data-controlled and adaptive-depth neural ODEs (Dupont 2019; Massaroli 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt


class Augmentation(nn.Module):
    """Extra features for the state: zeros, or computed from the input.

    A flow in the input's own space is a homeomorphism, so it cannot carry an inner disc out
    through a ring around it; with one more dimension it can.

    Equation:
        zero: h(0) = [x, 0];  input: h(0) = [x, h̃(x)], h̃ a linear layer

    Symbols:
        x input, h̃ learned input layer.

    Args:
        input_size: Features of the input.
        extra_size: Features added.
        kind: `zero` or `input`.

    Example:
        >>> Augmentation(2, 3)(torch.randn(5, 2)).shape
        torch.Size([5, 5])

    Reference:
        E. Dupont, A. Doucet, Y. W. Teh. Augmented neural ODEs. NeurIPS, 2019. Input layers:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        extra_size: PositiveInt,
        kind: Literal["zero", "input"] = "zero",
    ) -> None:
        super().__init__()
        self.extra_size = extra_size
        self.size = input_size + extra_size
        self.layer = nn.Linear(input_size, extra_size) if kind == "input" else None

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, input + extra)."""
        if self.layer is not None:
            return torch.cat((x, self.layer(x)), dim=-1)
        return torch.cat((x, x.new_zeros(*x.shape[:-1], self.extra_size)), dim=-1)


class WithIntegral(nn.Module):
    """A field together with a running integral of a loss.

    Equation:
        ż = f(s, z),  λ̇ = l(s, z);  loss L(z(S)) + λ(S)

    Symbols:
        z state, l loss per unit of depth, λ its integral. Differentiating this system gives the
        generalised adjoint ȧ = −aᵀ ∂f/∂z − ∂l/∂z, and the gradient of parameters inside l.

    Args:
        field: f.
        integrand: l, called with (s, z), returning (batch,).

    Example:
        >>> both = WithIntegral(field, lambda s, z: z.pow(2).sum(-1))
        >>> state, integral = solve(both, (x, x.new_zeros(len(x))), [0.0, 1.0]).final

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    def __init__(self, field: nn.Module, integrand: Any) -> None:
        super().__init__()
        self.field = field
        self.integrand = integrand

    def forward(self, t: Any, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return both derivatives."""
        z, _ = state
        return self.field(t, z), self.integrand(t, z)


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
