"""NSSNN (Xiong and others, 2021): any energy, by Tao's steps in a doubled phase space."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import (
    ENERGY,
    VOLUME,
    MotionModel,
    PerceptronOptions,
    perceptron_arguments,
)
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.hnn import PerceptronHamiltonian
from undamped.ode.methods.symplectic import TaoOfCopies
from undamped.ode.settings import Gradient
from undamped.ode.solve import OnFailure

DOUBLED = Promise(Kind.SYMPLECTIC, "every step is symplectic on both copies together: DᵀJD = J")


@models.register("nssnn")
class NSSNN(MotionModel):
    """Nonseparable symplectic network: any H(q, p), stepped explicitly in two coupled copies.

    Equation:
        φ₁(h/2) φ₂(h/2) φ₃(h) φ₂(h/2) φ₁(h/2), the flows of H(q, y), H(x, p) and
        ω/2 (‖q − x‖² + ‖p − y‖²), from x = q and y = p

    Symbols:
        (q, p) the state, (x, y) its copy, H a perceptron, ω coupling, h step size.

    Promise:
        Every step is symplectic on (q, p, x, y) together, and not on (q, p) alone. Both copies are
        fitted to the data: training adds the loss of the second to that of the first.

    Args:
        omega: ω.
        step_size: Size of all steps; readings that lie further apart are reached in several steps.
        gradient: How gradients are computed.
        options: See `PerceptronOptions`.

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
        omega: PositiveFloat = 20.0,
        step_size: PositiveFloat = 0.01,
        gradient: Gradient = "backprop",
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "NSSNN")
        arguments = perceptron_arguments(coordinates, options)
        _refuse_full_turns(omega, step_size)
        solver = {"method": TaoOfCopies(omega), "step_size": step_size, "gradient": gradient}
        self._build(PerceptronHamiltonian(coordinates.dof, **arguments), coordinates, solver)
        self.promises = (ENERGY, VOLUME, DOUBLED)
        self._second: Tensor | None = None

    def _solve(
        self, start: Tensor, times: Tensor, first: int, u: Tensor | None, on_failure: OnFailure
    ) -> Tensor:
        """Return the first copy; the second is stored for training."""
        field, start = _CopiedField(self.field), self._sorted(start)
        both = torch.cat((start, start), dim=-1)
        if times.dim() == 2:
            self._solve_per_sample(field, both, times, on_failure)  # raises the error
        states = self.flow.solve(both, times, field=field, on_failure=on_failure).values
        copy, second = states[first:].chunk(2, dim=-1)
        self._second = self._unsorted(second) if torch.is_grad_enabled() else None
        return self._unsorted(copy)

    def further_predictions(self) -> list[Tensor]:
        """Return the second copy of the last pass, which is fitted to the data too."""
        return [] if self._second is None else [self._second]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_second": None}

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random pairs of copies: positions of both, then momenta of both."""
        first, second = (super(NSSNN, self).phase_states(count, generator) for _ in range(2))
        (q, p), (x, y) = first.chunk(2, dim=-1), second.chunk(2, dim=-1)
        return torch.cat((q, x, p, y), dim=-1)

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step of both copies."""
        q, x, p, y = states.chunk(4, dim=-1)
        after = self._one_step(_CopiedField(self.field), torch.cat((q, p, x, y), dim=-1))
        q, p, x, y = after.chunk(4, dim=-1)
        return torch.cat((q, x, p, y), dim=-1)


class _CopiedField(nn.Module):
    """A field of one state, or of two copies of it side by side.

    Args:
        field: The field of one state.
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


def _refuse_full_turns(omega: float, step_size: float) -> None:
    """Refuse a step in which the rotation that couples the copies completes full turns."""
    turns = omega * step_size / math.pi
    if round(turns) >= 1 and abs(turns - round(turns)) < 0.02:
        raise OptionError(
            f"NSSNN.step_size must not be a multiple of π/ω = {math.pi / omega:.4g}, after which "
            f"the copies are not coupled, got {step_size} with omega={omega:g}."
        )
