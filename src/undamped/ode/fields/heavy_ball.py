"""Second-order neural ODEs: SONODE, HBNODE and GHBNODE (Xia and others, 2021)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt


class HeavyBallField(nn.Module):
    """The heavy-ball field: a force on a position, with learned damping of its momentum.

    Equation:
        ḣ = act(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        h position, m momentum, γ = scale · σ̂(θ) damping, ξ = softplus(ρ) restoring force, f the
        force. HBNODE: act the identity and no ξ. GHBNODE: act tanh and learned ξ.

    Args:
        force: f, a module called with (t, h).
        damping: γ at the start, below `scale`; the authors' program begins at σ̂(−3) ≈ 0.047.
        scale: What γ stays below.
        train_damping: Whether γ is learned.
        general: Whether to bound ḣ by tanh and add the restoring force (GHBNODE).
        dim: Dimension of positions and momenta: the last for vectors, 1 for images.

    Example:
        >>> field = HeavyBallField(PerceptronField(2, 32))
        >>> field(torch.tensor(0.0), torch.randn(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    @checked
    def __init__(
        self,
        force: nn.Module,
        *,
        damping: PositiveFloat = 0.0474,
        scale: PositiveFloat = 1.0,
        train_damping: bool = True,
        general: bool = False,
        dim: int = -1,
    ) -> None:
        super().__init__()
        if damping >= scale:
            raise OptionError(f"damping must be > 0 and < scale = {scale:g}, got {damping:g}.")
        self.force = force
        self.dim = dim
        self.scale = scale
        logit = torch.logit(torch.tensor(damping / scale))
        self.damping_logit = nn.Parameter(logit, requires_grad=train_damping)
        # softplus(2) is where the authors start it on images.
        self.restoring = nn.Parameter(torch.tensor(2.0)) if general else None

    @property
    def damping(self) -> Tensor:
        """γ."""
        return self.scale * torch.sigmoid(self.damping_logit)

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return (ḣ, ṁ) for a state (…, 2 × size): positions, then momenta."""
        position, momentum = state.chunk(2, dim=self.dim)
        push = self.force(t, position) - self.damping * momentum
        if self.restoring is None:
            return torch.cat((momentum, push), dim=self.dim)
        push = push - softplus(self.restoring) * position
        return torch.cat((torch.tanh(momentum), push), dim=self.dim)


class SecondOrderField(nn.Module):
    """SONODE: a force that sees position and velocity, and no built-in damping.

    Equation:
        ḣ = m,  ṁ = f(t, [h, m])

    Symbols:
        h position, m velocity, f force.

    Args:
        force: f, a module from (t, (…, 2 × size)) to (…, size).
        dim: Dimension of positions and velocities.

    Example:
        >>> field = SecondOrderField(PerceptronField(2, 32, input_size=4))

    Reference:
        A. Norcliffe and others. On second order behaviour in augmented neural ODEs. NeurIPS,
        2020.
    """

    def __init__(self, force: nn.Module, *, dim: int = -1) -> None:
        super().__init__()
        self.force = force
        self.dim = dim

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return (ḣ, ṁ) for a state (…, 2 × size)."""
        momentum = state.chunk(2, dim=self.dim)[1]
        return torch.cat((momentum, self.force(t, state)), dim=self.dim)


class InitialMomentum(nn.Module):
    """The state of a second-order model at the start: the input and its momentum.

    Args:
        size: Features of the position.
        kind: `zero`, or `learned`: a linear layer of the input.
    """

    @checked
    def __init__(self, size: PositiveInt, kind: Literal["zero", "learned"] = "learned") -> None:
        super().__init__()
        self.layer = nn.Linear(size, size) if kind == "learned" else None

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, 2 × size)."""
        momentum = torch.zeros_like(x) if self.layer is None else self.layer(x)
        return torch.cat((x, momentum), dim=-1)
