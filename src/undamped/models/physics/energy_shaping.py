"""Energy shaping: a controller from a learned energy, for fully actuated systems.

Inputs replace the learned potential by one whose minimum is the target; inputs against the
velocity dissipate energy, so that the system comes to rest there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeFloat
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.ports import Forced, Mechanics, times
from undamped.ode import solve

_PERIODIC = ("angle", "cosine")
_STATES = 64
_RANK = 1e-3
"""Smallest ratio of singular values of g at which a system counts as fully actuated."""


class EnergyShaping:
    """A controller that gives a learned system another potential energy, and friction.

    Equation:
        u = gᵀ(ggᵀ)⁻¹ (∂V/∂q − ∂V_d/∂q − K_d q̇)
        quadratic: ∂V_d/∂q = K_p (q − q*);  inverted: V_d = −V, whose minimum is the maximum of V

    Symbols:
        q positions, g and V those of the model, q* target, K_p and K_d gains in units of the
        inputs: a model learns V and g up to a common factor, which cancels.

    Args:
        model: A trained model with inputs: SymODEN, or another whose field has a potential.
        target: q*, one number for every position; angles are compared on the circle.
        position_gain: K_p.
        damping_gain: K_d.
        potential: V_d: quadratic around the target, or the inverted potential.

    Example:
        >>> space = StateSpace(("cos", "sin", "w"), ("cosine", "sine", "velocity"), ("u",))
        >>> control = EnergyShaping(undamped.models.SymODEN(space), target=[math.pi])
        >>> control(0.0, torch.tensor([[1.0, 0.0, 0.0]])).shape
        torch.Size([1, 1])

    Reference:
        R. Ortega and others. Putting energy back in control. IEEE Control Systems, 2001. With
        learned energies: Y. D. Zhong and others. ICLR, 2020. M. Lutter and others. ICRA, 2019.
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        target: Sequence[float],
        *,
        position_gain: NonNegativeFloat = 5.0,
        damping_gain: NonNegativeFloat = 3.0,
        potential: Literal["quadratic", "inverted"] = "quadratic",
    ) -> None:
        if not isinstance(model, MotionModel) or not hasattr(model.field, "mechanics"):
            raise OptionError(
                "EnergyShaping needs a model with a learned energy, such as SymODEN trained on a "
                f"task with inputs, got {type(model).__name__}."
            )
        self.model, self.potential = model, potential
        self.position_gain, self.damping_gain = position_gain, damping_gain
        dof = self._check_actuation()
        if len(target) != dof:
            raise OptionError(
                f"EnergyShaping.target must have {dof} numbers, one for every position, got "
                f"{len(target)}."
            )
        self.target = torch.tensor(list(target), dtype=torch.float64)
        self.periodic = torch.tensor(self._periodic(dof))

    def _periodic(self, dof: int) -> list[bool]:
        """Return which positions are angles, in the order of the field."""
        space, coordinates = self.model.space, self.model.coordinates
        order = range(space.size) if coordinates is None else coordinates.order
        kinds = [space.kinds[index] for index in order]
        periodic = [kind in _PERIODIC for kind in kinds if kind in ("position", "angle", "cosine")]
        return periodic[:dof]

    def _check_actuation(self) -> int:
        """Return the degrees of freedom; raise an error if the system is not fully actuated."""
        probe = next(self.model.parameters())
        states, _ = self.model.example_states(_STATES, torch.Generator().manual_seed(0))
        mechanics = self._mechanics(states.to(probe.dtype))
        dof = mechanics.position.shape[-1]
        matrix = mechanics.input_matrix
        if matrix is None or matrix.shape[-1] < dof:
            raise OptionError(
                f"Energy shaping needs one input for each of {dof} degrees of freedom, got "
                f"{0 if matrix is None else matrix.shape[-1]}. An underactuated system needs "
                "another method, such as energy pumping or partial feedback linearisation."
            )
        values = torch.linalg.svdvals(matrix)
        worst = (values[..., dof - 1] / values[..., 0]).min().item()
        if worst < _RANK:
            raise OptionError(
                "Energy shaping needs inputs that act in every direction, but the smallest "
                f"singular value of the learned g is {worst:.1g} of its largest. Train with inputs "
                "in all directions, for longer, or on more starts."
            )
        return dof

    @torch.no_grad()
    def _mechanics(self, states: Tensor) -> Mechanics:
        return self.model.field.mechanics(self.model._sorted(states))  # type: ignore[operator]

    @torch.no_grad()
    def __call__(self, t: Any, states: Tensor) -> Tensor:
        """Return the inputs (…, inputs) for states (…, size) of the model's space, at any time."""
        like = next(self.model.parameters())
        mechanics = self._mechanics(states.to(like.dtype))
        assert mechanics.input_matrix is not None
        g, dof = mechanics.input_matrix, mechanics.position.shape[-1]
        # The norm of g, so that gains are in units of the inputs.
        scale = torch.linalg.matrix_norm(g).unsqueeze(-1) / math.sqrt(dof)
        if self.potential == "inverted":
            force = 2 * mechanics.slope
        else:
            force = mechanics.slope - scale * self.position_gain * self._error(mechanics.position)
        force = force - scale * self.damping_gain * mechanics.velocity
        return times(g.mT, torch.linalg.solve(g @ g.mT, force)).to(states.dtype)

    def _error(self, position: Tensor) -> Tensor:
        """Return q − q*, for angles between −π and π."""
        error = position - self.target.to(position.dtype)
        wrapped = torch.atan2(torch.sin(error), torch.cos(error))
        return torch.where(self.periodic.to(position.device), wrapped, error)


@torch.no_grad()
def control_loop(
    field: nn.Module, control: Any, start: Tensor, step: float, count: int
) -> tuple[Tensor, Tensor]:
    """Simulate a field under a controller, with inputs that are constant during each step.

    Args:
        field: The true system, called with (t, state, u).
        control: From (t, states) to inputs.
        start: States (batch, size).
        step: Time between two calls of the controller.
        count: Number of calls.

    Returns:
        States (count + 1, batch, size) and inputs (count, batch, inputs).
    """
    state, states, inputs = start.double(), [start.double()], []
    for k in range(count):
        u = control(k * step, state)
        state = solve(Forced(field, u), state, [0.0, step], rtol=1e-8, atol=1e-8).final
        states.append(state)
        inputs.append(u)
    return torch.stack(states), torch.stack(inputs)
