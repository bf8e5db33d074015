"""Energy shaping: a controller from a learned energy, for systems with an input for every freedom.

Inputs that cancel the learned potential and put another in its place make a system fall to where
that one has its bottom; inputs against the velocity make it stay there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeFloat
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.ports import Driven, Mechanics, times
from undamped.ode import solve

_TURNS = ("angle", "cosine")
_STATES = 64
_RANK = 1e-3
"""Smallest singular value of g, as a share of its largest, at which an input still acts."""


class EnergyShaping:
    """A controller that gives a learned system another potential energy, and friction.

    Equation:
        u = gᵀ(ggᵀ)⁻¹ (∂V/∂q − ∂V_d/∂q − K_d q̇)
        quadratic: ∂V_d/∂q = K_p (q − q*);  inverted: V_d = −V, whose bottom is V's top

    Symbols:
        q positions, g and V those of the model, q* target, K_p and K_d gains in units of the
        inputs: a model knows V and g up to a common factor, which is taken out.

    Args:
        model: A trained model with inputs: SymODEN, or another whose field has a potential.
        target: q*, one number for every position; angles are compared by the shorter way round.
        position_gain: K_p.
        damping_gain: K_d.
        potential: Which V_d: a bowl around the target, or the potential upside down.

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
                explain(
                    "EnergyShaping.model",
                    expected="a model that has learned an energy, such as SymODEN",
                    got=type(model).__name__,
                    remedy="Train 'symoden' on a task with inputs.",
                )
            )
        self.model, self.potential = model, potential
        self.position_gain, self.damping_gain = position_gain, damping_gain
        freedoms = self._check_actuation()
        if len(target) != freedoms:
            raise OptionError(
                explain(
                    "EnergyShaping.target",
                    expected=f"{freedoms} numbers, one for every position",
                    got=len(target),
                    remedy="Give the positions that are to be held.",
                )
            )
        self.target = torch.tensor(list(target), dtype=torch.float64)
        self.turns = torch.tensor(self._turning(freedoms))

    def _turning(self, freedoms: int) -> list[bool]:
        """Return which positions come round again, in the order of the field."""
        space, sorting = self.model.space, self.model.coordinates
        order = range(space.size) if sorting is None else sorting.order
        kinds = [space.kinds[place] for place in order]
        straight = [kind in _TURNS for kind in kinds if kind in ("position", "angle", "cosine")]
        return straight[:freedoms]

    def _check_actuation(self) -> int:
        """Refuse a system that has not an input for every freedom; return how many it has."""
        probe = next(self.model.parameters())
        states, _ = self.model.example_states(_STATES, torch.Generator().manual_seed(0))
        known = self._mechanics(states.to(probe.dtype))
        freedoms = known.place.shape[-1]
        acting = known.acting
        if acting is None or acting.shape[-1] < freedoms:
            raise OptionError(
                explain(
                    "energy shaping",
                    expected=f"an input for every one of {freedoms} freedoms, so that any force "
                    "can be made",
                    got="no inputs" if acting is None else f"{acting.shape[-1]}",
                    remedy="An under-actuated system needs another method, such as energy pumping "
                    "or collocated partial feedback linearisation.",
                )
            )
        values = torch.linalg.svdvals(acting)
        worst = (values[..., freedoms - 1] / values[..., 0]).min().item()
        if worst < _RANK:
            raise OptionError(
                explain(
                    "energy shaping",
                    expected="inputs that act in every direction at every state",
                    got=f"a learned g whose smallest singular value is {worst:.1g} of its largest",
                    remedy="Train with inputs in all directions, for longer, or on more starts.",
                )
            )
        return freedoms

    @torch.no_grad()
    def _mechanics(self, states: Tensor) -> Mechanics:
        return self.model.field.mechanics(self.model._sorted(states))  # type: ignore[operator]

    @torch.no_grad()
    def __call__(self, t: Any, states: Tensor) -> Tensor:
        """Return the inputs for states (…, size), (…, inputs).

        Args:
            t: Time, which does not matter.
            states: States as the model's space has them.
        """
        like = next(self.model.parameters())
        known = self._mechanics(states.to(like.dtype))
        assert known.acting is not None
        g, freedoms = known.acting, known.place.shape[-1]
        # One number for how strongly inputs act, so that gains are in units of the inputs.
        scale = torch.linalg.matrix_norm(g).unsqueeze(-1) / math.sqrt(freedoms)
        if self.potential == "inverted":
            force = 2 * known.slope
        else:
            force = known.slope - scale * self.position_gain * self._away(known.place)
        force = force - scale * self.damping_gain * known.speed
        found = times(g.mT, torch.linalg.solve(g @ g.mT, force))
        return found.to(states.dtype)

    def _away(self, place: Tensor) -> Tensor:
        """Return q − q*, angles by the shorter way round."""
        apart = place - self.target.to(place.dtype)
        short = torch.atan2(torch.sin(apart), torch.cos(apart))
        return torch.where(self.turns.to(place.device), short, apart)


@torch.no_grad()
def control_loop(
    field: nn.Module, control: Any, start: Tensor, step: float, count: int
) -> tuple[Tensor, Tensor]:
    """Let a controller act on a field, with inputs that are held from one step to the next.

    Args:
        field: The true system, called with (t, state, u).
        control: From (t, states) to inputs.
        start: States (batch, size).
        step: Time between two looks at the state.
        count: How many looks.

    Returns:
        States (count + 1, batch, size) and inputs (count, batch, inputs).
    """
    state, states, inputs = start.double(), [start.double()], []
    for k in range(count):
        u = control(k * step, state)
        state = solve(Driven(field, u), state, [0.0, step], rtol=1e-8, atol=1e-8).final
        states.append(state)
        inputs.append(u)
    return torch.stack(states), torch.stack(inputs)
