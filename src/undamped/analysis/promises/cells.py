"""Promises about a single step of a cell, a layer or a model, and about its matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped._base.promises import Kind
from undamped.analysis.promises.measurement import Outcome, jacobian_of, measures

State = tuple[Tensor, ...]
ROUNDING = 1e-9
SAMPLES, STEPS, PHASE_STATES = 8, 200, 4


@dataclass(frozen=True)
class _Step:
    """One step from a random state, with its inverse."""

    state: State
    advance: Callable[[State], State]
    undo: Callable[[State], State]

    def jacobian(self) -> Tensor:
        """Return the Jacobian of the step, with all parts of the state concatenated."""
        width = self.state[0].shape[-1]

        def step(flat: Tensor) -> Tensor:
            parts = tuple(flat[:, i * width : (i + 1) * width] for i in range(len(self.state)))
            return torch.cat(self.advance(parts), dim=-1)

        return jacobian_of(step, torch.cat(self.state, dim=-1))


def _steps(subject: Any, generator: torch.Generator) -> Iterator[_Step]:
    """Yield random steps of a cell, or of the layers of a residual network."""
    for index in range(SAMPLES):
        if hasattr(subject, "undo"):
            yield _layer_step(subject, index % subject.depth, generator)
        else:
            yield _cell_step(subject, generator)


def _layer_step(layers: Any, index: int, generator: torch.Generator) -> _Step:
    pair = tuple(_normal(1, layers.size, generator) for _ in range(2))
    return _Step(pair, partial(layers.step, index), partial(layers.undo, index))


def _cell_step(cell: Any, generator: torch.Generator) -> _Step:
    x = _normal(1, cell.input_size, generator)
    state = tuple(_normal(1, size, generator) for size in cell.state_sizes)
    projected, constants = cell.project(x), cell.constants()
    return _Step(
        state,
        lambda state: cell.advance(projected, state, constants),
        lambda state: cell.inverse(projected, state, constants),
    )


def _normal(rows: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, size, generator=generator, dtype=torch.float64)


@measures(Kind.BOUNDED_STEP_GRADIENT, needs="step_gradient_bound")
def measure_bounded_step_gradient(cell: Any, generator: torch.Generator) -> Outcome:
    """Compare the largest ‖∂h'/∂h‖ at random states with the bound declared."""
    norms = [
        torch.linalg.matrix_norm(step.jacobian(), 2).item() for step in _steps(cell, generator)
    ]
    bound = cell.step_gradient_bound().item()
    return max(norms), bound * (1 + ROUNDING), "largest ‖∂h'/∂h‖ over random states"


@measures(Kind.INVERTIBLE, needs="inverse or undo or phase_undo")
@torch.no_grad()
def measure_invertible(subject: Any, generator: torch.Generator) -> Outcome:
    """Take a step and invert it."""
    if hasattr(subject, "phase_undo"):
        states = subject.phase_states(SAMPLES, generator)
        error = (subject.phase_undo(subject.phase_step(states)) - states).abs().max().item()
        return error, ROUNDING, "largest error after a step forth and back"
    worst = 0.0
    for step in _steps(subject, generator):
        for recovered, true in zip(step.undo(step.advance(step.state)), step.state, strict=True):
            worst = max(worst, (recovered - true).abs().max().item())
    return worst, ROUNDING, "largest error after a step forth and back"


@measures(Kind.VOLUME_PRESERVING, needs="advance or undo")
def measure_volume_preserving(subject: Any, generator: torch.Generator) -> Outcome:
    """Compare the determinant of a step with one."""
    errors = [
        abs(torch.linalg.det(step.jacobian()).item() - 1) for step in _steps(subject, generator)
    ]
    return max(errors), ROUNDING, "largest |det J − 1|"


@measures(Kind.SYMPLECTIC, needs="advance or undo or phase_step")
def measure_symplectic(subject: Any, generator: torch.Generator) -> Outcome:
    """Compare JᵀΩJ with Ω."""
    if hasattr(subject, "phase_step"):
        return _symplectic_phase_step(subject, generator)
    worst = 0.0
    for step in _steps(subject, generator):
        jacobian, form = step.jacobian(), _canonical_form(step.state[0].shape[-1])
        worst = max(worst, _form_error(jacobian, form))
    return worst, ROUNDING, "largest entry of |JᵀΩJ − Ω|"


def _canonical_form(size: int) -> Tensor:
    """Return [[0, I], [−I, 0]] for `size` positions and as many momenta."""
    zero, eye = torch.zeros(size, size).double(), torch.eye(size).double()
    return torch.cat([torch.cat([zero, eye], 1), torch.cat([-eye, zero], 1)])


def _form_error(jacobian: Tensor, form: Tensor) -> float:
    return (jacobian.T @ form @ jacobian - form).abs().max().item()


def _symplectic_phase_step(model: Any, generator: torch.Generator) -> Outcome:
    """Compare DᵀJD with J for the Jacobian D of a step in phase space."""
    states = model.phase_states(PHASE_STATES, generator)
    form, worst = _canonical_form(states.shape[-1] // 2).to(states), 0.0
    for state in states:
        jacobian = jacobian_of(model.phase_step, state.unsqueeze(0))
        worst = max(worst, _form_error(jacobian, form))
    return worst, 1e-10, "largest entry of |DᵀJD − J| of a step"


@measures(Kind.BOUNDED_STATE, needs="state_bound")
@torch.no_grad()
def measure_bounded_state(cell: Any, generator: torch.Generator) -> Outcome:
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
    return worst, 1.0, "largest state relative to its bound"


@measures(Kind.ISOMETRIC, Kind.STARTS_ISOMETRIC, needs="recurrent_matrix")
def measure_isometric_matrix(cell: Any, generator: torch.Generator) -> Outcome:
    """Compare WᵀW with the identity."""
    matrix = cell.recurrent_matrix().detach()
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    # Weights are initialised in single precision, which limits how orthogonal they are.
    return (matrix.mH @ matrix - identity).abs().max().item(), 1e-5, "largest entry of |WᵀW − I|"


@measures(Kind.SCALED_SPECTRUM, needs="recurrent_matrix free_parameters spectrum")
@torch.no_grad()
def measure_scaled_spectrum(cell: Any, generator: torch.Generator) -> Outcome:
    """Perturb all free parameters and compare eigenvalue moduli with those declared."""
    for parameter in cell.free_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.add_(0.2 * noise)
    moduli = torch.linalg.eigvals(cell.recurrent_matrix()).abs().sort().values
    error = (moduli - cell.spectrum().sort().values).abs().max().item()
    return error, 1e-5, "largest difference between |λ| and γ"
