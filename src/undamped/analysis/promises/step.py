"""Promises about single steps, of a cell in time or of a layer in depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped._base.promises import (
    HasEquilibrium,
    HasLayers,
    HasMomentum,
    HasPhaseInverse,
    HasPhaseStep,
    HasStateBound,
    HasStepGradientBound,
    HasStepInverse,
    HasSteps,
)
from undamped.analysis.promises.motion import measure_symplectic_step
from undamped.analysis.promises.result import Result

ROUNDING = 1e-9
SAMPLES = 8
STEPS = 200

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class _Step:
    """One step from a random state: what it does, and how it is undone."""

    state: State
    advance: Callable[[State], State]
    undo: Callable[[State], State]

    def jacobian(self) -> Tensor:
        """Return the Jacobian of the step, all parts of the state side by side."""
        width = self.state[0].shape[-1]

        def step(flat: Tensor) -> Tensor:
            parts = tuple(flat[:, i * width : (i + 1) * width] for i in range(len(self.state)))
            return torch.cat(self.advance(parts), dim=-1).squeeze(0)

        jacobian = torch.autograd.functional.jacobian(step, torch.cat(self.state, dim=-1))
        assert isinstance(jacobian, Tensor)
        return jacobian.squeeze(1)


def _steps(subject: HasSteps | HasLayers, generator: torch.Generator) -> Iterator[_Step]:
    for number in range(SAMPLES):
        if isinstance(subject, HasLayers):
            yield _layer(subject, number % subject.depth, generator)
        else:
            yield _cell_step(subject, generator)


def _layer(layers: HasLayers, number: int, generator: torch.Generator) -> _Step:
    pair = tuple(
        torch.randn(1, layers.size, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return _Step(
        pair, lambda state: layers.step(number, state), lambda state: layers.undo(number, state)
    )


def _cell_step(cell: HasSteps, generator: torch.Generator) -> _Step:
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = tuple(
        torch.randn(1, cell.state_size, generator=generator, dtype=torch.float64)
        for _ in cell.state_names
    )
    projected, constants = cell.project(x), cell.constants()

    def undo(state: State) -> State:
        assert isinstance(cell, HasStepInverse)
        return cell.inverse(projected, state, constants)

    return _Step(state, lambda state: cell.advance(projected, state, constants), undo)


def measure_bounded_step_gradient(cell: HasStepGradientBound, generator: torch.Generator) -> Result:
    """Compare the largest ‖∂h'/∂h‖ at random states with the bound declared."""
    norms = [
        torch.linalg.matrix_norm(step.jacobian(), 2).item() for step in _steps(cell, generator)
    ]
    bound = cell.step_gradient_bound().item()
    return max(norms), bound * (1 + ROUNDING), "largest ‖∂h'/∂h‖ over random states"


@torch.no_grad()
def measure_invertible(
    subject: HasStepInverse | HasLayers | HasPhaseInverse, generator: torch.Generator
) -> Result:
    """Take a step and take it back."""
    if isinstance(subject, HasPhaseInverse):
        states = subject.phase_states(SAMPLES, generator)
        error = (subject.phase_undo(subject.phase_step(states)) - states).abs().max().item()
        return error, ROUNDING, "largest error after a step forth and back"
    worst = 0.0
    for step in _steps(subject, generator):
        for found, true in zip(step.undo(step.advance(step.state)), step.state, strict=True):
            worst = max(worst, (found - true).abs().max().item())
    return worst, ROUNDING, "largest error after a step forth and back"


def measure_volume_preserving(subject: HasSteps | HasLayers, generator: torch.Generator) -> Result:
    """Compare the determinant of a step with one."""
    errors = [
        abs(torch.linalg.det(step.jacobian()).item() - 1) for step in _steps(subject, generator)
    ]
    return max(errors), ROUNDING, "largest |det J − 1|"


def measure_symplectic(
    subject: HasSteps | HasLayers | HasPhaseStep, generator: torch.Generator
) -> Result:
    """Compare JᵀΩJ with Ω."""
    if isinstance(subject, HasPhaseStep):
        return measure_symplectic_step(subject, generator)
    worst = 0.0
    for step in _steps(subject, generator):
        size = step.state[0].shape[-1]
        zero, one = torch.zeros(size, size).double(), torch.eye(size).double()
        form = torch.cat([torch.cat([zero, one], 1), torch.cat([-one, zero], 1)])
        jacobian = step.jacobian()
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, ROUNDING, "largest entry of |JᵀΩJ − Ω|"


@torch.no_grad()
def measure_bounded_state(cell: HasStateBound, generator: torch.Generator) -> Result:
    """Run on random inputs and compare states with their bound."""
    x = torch.randn(STEPS, SAMPLES, cell.input_size, generator=generator, dtype=torch.float64)
    state, projected, constants = cell.initial_state(SAMPLES, x), cell.project(x), cell.constants()
    worst = 0.0
    for step in range(STEPS):
        state = cell.advance(projected[step], state, constants)
        bounds = cell.state_bound(step + 1)
        ratios = [
            part.abs().max().item() / bound for part, bound in zip(state, bounds, strict=True)
        ]
        worst = max(worst, *ratios)
    return worst, 1.0, "largest state as a share of its bound"


@torch.no_grad()
def measure_slower_vanishing(cell: HasMomentum, generator: torch.Generator) -> Result:
    """Multiply ∂h'/∂h over 50 steps, with and without momentum, on the same small input."""
    x = 0.1 * torch.randn(50, 1, cell.input_size, generator=generator, dtype=torch.float64)
    pushes, matrix = cell.project(x)[:, 0], cell.weight_hh
    plain = h = torch.zeros(cell.hidden_size, dtype=torch.float64)
    velocity = torch.zeros_like(h)
    without = with_momentum = torch.eye(cell.hidden_size, dtype=torch.float64)
    for push in pushes:
        plain = torch.tanh(matrix @ plain + cell.drive.step * push)
        without = (1 - plain**2).unsqueeze(1) * matrix @ without
        slope = torch.diag(cell.drive.momentum / (1 - h**2))
        velocity = cell.drive.momentum * velocity + cell.drive.step * push
        h = torch.tanh(matrix @ h + velocity)
        with_momentum = (1 - h**2).unsqueeze(1) * (matrix + slope) @ with_momentum
    norms = [torch.linalg.matrix_norm(p, 2).item() for p in (without, with_momentum)]
    return norms[0] / norms[1], 1.0, "‖∂h_T/∂h_0‖ without momentum over that with it, T = 50"


def measure_unit_gradient(cell: HasEquilibrium, generator: torch.Generator) -> Result:
    """Iterate to the equilibrium and compare ∂h'/∂h with minus the identity."""
    cell.steps = torch.nn.Parameter(torch.full((600,), 0.1, dtype=torch.float64))
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = torch.randn(1, cell.hidden_size, generator=generator, dtype=torch.float64)
    projected = cell.project(x).detach()
    jacobian = torch.autograd.functional.jacobian(
        lambda h: cell.advance(projected, (h,), cell.constants())[0].squeeze(0), state
    )
    assert isinstance(jacobian, Tensor)
    eye = torch.eye(cell.hidden_size, dtype=torch.float64)
    return (jacobian.squeeze(1) + eye).abs().max().item(), 1e-6, "largest entry of |∂h'/∂h + I|"
