"""NSSNN (Xiong and others, 2021): any energy, by Tao's steps in a doubled phase space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.energies import PerceptronHamiltonian
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.hnn import Angles
from undamped.models.physics.promised import ENERGY, VOLUME
from undamped.models.physics.state_model import output_times, space_of
from undamped.ode import solve as solve_field
from undamped.ode.methods.symplectic.tao import TaoOfCopies
from undamped.ode.settings import Gradient
from undamped.ode.solve import OnFailure

DOUBLED = Promise(Kind.SYMPLECTIC, "every step is symplectic on both copies together: DᵀJD = J")


@models.register("nssnn")
class NSSNN(MotionModel):
    """Nonseparable symplectic network: any H(q, p), stepped explicitly in two tied copies.

    Equation:
        φ₁(h/2) φ₂(h/2) φ₃(h) φ₂(h/2) φ₁(h/2), the flows of H(q, y), H(x, p) and
        ω/2 (‖q − x‖² + ‖p − y‖²), from x = q and y = p

    Symbols:
        (q, p) the state, (x, y) its copy, H a perceptron, ω tie, h step size.

    Promise:
        Every step is symplectic on (q, p, x, y) together, and not on (q, p) alone. Both copies are
        to meet the data: training adds the loss of the second to that of the first.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: Activation of H.
        angles: Whether H sees angles as numbers or by cosine and sine.
        omega: ω.
        step_size: Size of all steps; readings that lie further apart are reached in several.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.models.NSSNN(2, hidden_size=16)
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021. M. Tao. Explicit
        symplectic approximation of nonseparable Hamiltonians. Physical Review E, 2016.
    """

    promises = (ENERGY, VOLUME, DOUBLED)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "error": "absolute"},
        "model": {"hidden_size": 64},
        "train": {"learning_rate": 3e-3},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        angles: Angles = "plain",
        omega: PositiveFloat = 20.0,
        step_size: PositiveFloat = 0.01,
        gradient: Gradient = "backprop",
    ) -> None:
        super().__init__()
        space = space_of(shape, "NSSNN")
        coordinates = Coordinates.of(space, "NSSNN")
        field = PerceptronHamiltonian(
            coordinates.freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            angles=coordinates.angles if angles == "embedded" else (),
        )
        _refuse_untied(omega, step_size)
        tao = TaoOfCopies(omega)
        how = {"method": tao, "step_size": step_size, "gradient": gradient}
        self._build(space, field, how, coordinates)
        self.promises = (ENERGY, VOLUME, DOUBLED)
        self._second: Tensor | None = None

    def trajectory(
        self,
        start: Tensor,
        times: Tensor | Sequence[float],
        u: Tensor | None = None,
        *,
        on_failure: OnFailure = "raise",
    ) -> Tensor:
        """Return the first copy at some times after the start; the second is kept for training."""
        when, later = output_times(times, start)
        field, begin = _OnCopies(self.field), self._sorted(start)
        both = torch.cat((begin, begin), dim=-1)
        if when.dim() == 2:
            self._at_own_times(field, both, when, on_failure)  # which says why not
        values = self.flow.solve(both, when, field=field, on_failure=on_failure).values
        first, second = (values[1:] if later else values).chunk(2, dim=-1)
        self._second = self._unsorted(second) if torch.is_grad_enabled() else None
        return self._unsorted(first)

    def further_predictions(self) -> list[Tensor]:
        """Return the second copy of the last pass, which is to meet the data too."""
        return [] if self._second is None else [self._second]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_second": None}

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random pairs of copies: positions of both, then momenta of both."""
        first, second = (super(NSSNN, self).phase_states(count, generator) for _ in range(2))
        return torch.cat([part for k in (0, 1) for part in _halves(first, second, k)], dim=-1)

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step of both copies."""
        q, x, p, y = states.chunk(4, dim=-1)
        size = self.flow.step_size
        found = solve_field(
            _OnCopies(self.field),
            torch.cat((q, p, x, y), dim=-1),
            [0.0, size],  # type: ignore[list-item]
            method=self.flow.method,
            options={"step_size": size},
            gradient="backprop",
        )
        q, p, x, y = found.final.chunk(4, dim=-1)
        return torch.cat((q, x, p, y), dim=-1)


class _OnCopies(nn.Module):
    """A field that moves one state, or two copies of it side by side.

    Args:
        field: The field of one.
    """

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return the rates of one state, or of both copies."""
        if state.shape[-1] == self.field.size:
            return self.field(t, state)
        first, second = state.chunk(2, dim=-1)
        return torch.cat((self.field(t, first), self.field(t, second)), dim=-1)


def _halves(first: Tensor, second: Tensor, which: int) -> tuple[Tensor, Tensor]:
    return first.chunk(2, dim=-1)[which], second.chunk(2, dim=-1)[which]


def _refuse_untied(omega: float, step_size: float) -> None:
    """Refuse a step in which the rotation that ties the copies comes full circle."""
    turns = omega * step_size / math.pi
    if round(turns) >= 1 and abs(turns - round(turns)) < 0.02:
        raise OptionError(
            explain(
                "NSSNN.step_size",
                expected=f"a step in which the tie of ω = {omega:g} does not come full circle: "
                f"not a multiple of π/ω = {math.pi / omega:.4g}",
                got=step_size,
                remedy="Choose a smaller step, or another omega.",
            )
        )
