"""Taylor-net (Tong and others, 2021): forces as Taylor series, fourth-order symplectic steps."""

from __future__ import annotations

from typing import ClassVar, Unpack

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.taylor import TaylorField
from undamped.models.physics.promised import ENERGY, SYMPLECTIC, VOLUME
from undamped.models.physics.state_model import space_of
from undamped.models.physics.step_options import FourthOrderOptions, step_arguments


@models.register("taylor-net")
class TaylorNet(MotionModel):
    """Taylor network: forces and velocities as Taylor series of linear maps, from very few data.

    Equation:
        ∂V/∂q = b + Σ_{i≤M} (A_iᵀ (A_i q)^i − B_iᵀ (B_i q)^i) / i!,  ∂T/∂p likewise

    Symbols:
        q positions, p momenta, A_i, B_i and b parameters, powers taken number by number.

    Promise:
        The maps have symmetric Jacobians, so that they are gradients of energies; every step is
        symplectic. An energy that is not of the form T(p) + V(q) cannot be represented.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
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
        space = space_of(shape, "TaylorNet")
        coordinates = Coordinates.of(space, "TaylorNet")
        field = TaylorField(coordinates.freedoms, hidden_size, terms)
        self._build(space, field, step_arguments(solve), coordinates)
