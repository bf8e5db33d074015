"""Taylor-net (Tong and others, 2021): forces as Taylor series, fourth-order symplectic steps."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import ENERGY, SYMPLECTIC, VOLUME, FourthOrderOptions, MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.hamiltonian import PairField


class TaylorPotential(nn.Module):
    """A potential whose gradient is a sum of powers of linear maps, with a symmetric Jacobian.

    Equation:
        φ(x) = bᵀx + Σ_i Σ_k ((A_i x)_k^{i+1} − (B_i x)_k^{i+1}) / (i+1)!
        ∇φ(x) = b + Σ_i (A_iᵀ (A_i x)^i − B_iᵀ (B_i x)^i) / i!

    Args:
        size: Features of x.
        hidden_size: Rows of every A_i and B_i.
        terms: Number of powers.
    """

    def __init__(self, size: int, hidden_size: int = 16, terms: int = 8) -> None:
        super().__init__()
        # Small, so that high powers are small at first.
        scale = 1 / math.sqrt(2 * hidden_size * size)
        self.plus = nn.Parameter(scale * torch.randn(terms, hidden_size, size))
        self.minus = nn.Parameter(scale * torch.randn(terms, hidden_size, size))
        self.slope = nn.Parameter(torch.zeros(size))
        powers = torch.arange(1, terms + 1)
        factorials = [1 / math.factorial(int(i)) for i in powers]
        self.register_buffer("powers", powers, persistent=False)
        self.register_buffer(
            "weights", torch.tensor(factorials, dtype=torch.float64), persistent=False
        )

    powers: Tensor
    weights: Tensor

    def _raised(self, maps: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y_i = (A x)_i, (…, terms, hidden), and y_i^i / i!."""
        y = torch.einsum("khn,...n->...kh", maps, x)
        raised = [y[..., k, :] ** int(i) for k, i in enumerate(self.powers.tolist())]
        return y, torch.stack(raised, dim=-2) * self.weights.to(x.dtype).unsqueeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Return φ, (…,)."""
        total = (self.slope * x).sum(-1)
        over = (self.powers + 1).to(x.dtype).unsqueeze(-1)
        for sign, maps in ((1, self.plus), (-1, self.minus)):
            y, raised = self._raised(maps, x)
            total = total + sign * (y * raised / over).sum((-2, -1))
        return total

    def gradient(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, size)."""
        total = self.slope.expand_as(x)
        for sign, maps in ((1, self.plus), (-1, self.minus)):
            raised = self._raised(maps, x)[1]
            total = total + sign * torch.einsum("...kh,khn->...n", raised, maps)
        return total


class TaylorField(PairField):
    """T(p) + V(q), a Taylor potential each.

    Args:
        dof: Positions; as many momenta.
        hidden_size: Rows of every linear map.
        terms: Number of powers.
    """

    def __init__(self, dof: int, hidden_size: int = 16, terms: int = 8) -> None:
        of_momenta, of_positions = (TaylorPotential(dof, hidden_size, terms) for _ in range(2))
        super().__init__(dof, of_momenta, of_positions)


@models.register("taylor-net")
class TaylorNet(MotionModel):
    """Taylor network: forces and velocities as Taylor series of linear maps, from very few data.

    Equation:
        ∂V/∂q = b + Σ_{i≤M} (A_iᵀ (A_i q)^i − B_iᵀ (B_i q)^i) / i!,  ∂T/∂p likewise

    Symbols:
        q positions, p momenta, A_i, B_i and b parameters, powers taken elementwise.

    Promise:
        The maps have symmetric Jacobians, so that they are gradients of energies; every step is
        symplectic. An energy that is not of the form T(p) + V(q) cannot be represented.

    Args:
        hidden_size: Rows of every A_i and B_i.
        terms: M.
        solve: Method, step_size and gradient: see `StepOptions`.

    Example:
        >>> model = undamped.models.TaylorNet(2)
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

    Reference:
        Y. Tong, S. Xiong, X. He, G. Pan, B. Zhu. Symplectic neural networks in Taylor series form
        for Hamiltonian systems. Journal of Computational Physics, 2021.
    """

    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "window": 1, "error": "absolute"},
        "model": {"hidden_size": 16},
        "train": {"learning_rate": 3e-3},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 16,
        terms: PositiveInt = 8,
        **solve: Unpack[FourthOrderOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "TaylorNet")
        self._build(TaylorField(coordinates.dof, hidden_size, terms), coordinates, solve)
