"""Promises about a single step of a cell, a layer or a model, its matrix and its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from undamped._base.promises import (
    HasEquilibrium,
    HasFreeMatrix,
    HasLayers,
    HasMargin,
    HasMemory,
    HasMomentum,
    HasPhaseInverse,
    HasPhaseStep,
    HasRecurrentMatrix,
    HasSpectrum,
    HasStateBound,
    HasStepGradientBound,
    HasStepInverse,
    HasSteps,
)

Outcome = tuple[float, float, str]
"""The measured value, the limit that it must not exceed, and what the value means."""

ROUNDING = 1e-9
SAMPLES = 8
STEPS = 200
PHASE_STATES = 4

State = tuple[Tensor, ...]
FEW_STEPS, MANY_STEPS = 10, 1000
FACTORS = {"half": 0.5, "sum": 1.0}


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
            return torch.cat(self.advance(parts), dim=-1).squeeze(0)

        jacobian = torch.autograd.functional.jacobian(step, torch.cat(self.state, dim=-1))
        assert isinstance(jacobian, Tensor)
        return jacobian.squeeze(1)


def _steps(subject: HasSteps | HasLayers, generator: torch.Generator) -> Iterator[_Step]:
    for index in range(SAMPLES):
        if isinstance(subject, HasLayers):
            yield _layer(subject, index % subject.depth, generator)
        else:
            yield _cell_step(subject, generator)


def _layer(layers: HasLayers, index: int, generator: torch.Generator) -> _Step:
    pair = tuple(
        torch.randn(1, layers.size, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return _Step(
        pair, lambda state: layers.step(index, state), lambda state: layers.undo(index, state)
    )


def _cell_step(cell: HasSteps, generator: torch.Generator) -> _Step:
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = tuple(
        torch.randn(1, size, generator=generator, dtype=torch.float64) for size in cell.state_sizes
    )
    projected, constants = cell.project(x), cell.constants()

    def undo(state: State) -> State:
        assert isinstance(cell, HasStepInverse)
        return cell.inverse(projected, state, constants)

    return _Step(state, lambda state: cell.advance(projected, state, constants), undo)


def measure_bounded_step_gradient(
    cell: HasStepGradientBound, generator: torch.Generator
) -> Outcome:
    """Compare the largest ‖∂h'/∂h‖ at random states with the bound declared."""
    norms = [
        torch.linalg.matrix_norm(step.jacobian(), 2).item() for step in _steps(cell, generator)
    ]
    bound = cell.step_gradient_bound().item()
    return max(norms), bound * (1 + ROUNDING), "largest ‖∂h'/∂h‖ over random states"


@torch.no_grad()
def measure_invertible(
    subject: HasStepInverse | HasLayers | HasPhaseInverse, generator: torch.Generator
) -> Outcome:
    """Take a step and invert it."""
    if isinstance(subject, HasPhaseInverse):
        states = subject.phase_states(SAMPLES, generator)
        error = (subject.phase_undo(subject.phase_step(states)) - states).abs().max().item()
        return error, ROUNDING, "largest error after a step forth and back"
    worst = 0.0
    for step in _steps(subject, generator):
        for recovered, true in zip(step.undo(step.advance(step.state)), step.state, strict=True):
            worst = max(worst, (recovered - true).abs().max().item())
    return worst, ROUNDING, "largest error after a step forth and back"


def measure_volume_preserving(subject: HasSteps | HasLayers, generator: torch.Generator) -> Outcome:
    """Compare the determinant of a step with one."""
    errors = [
        abs(torch.linalg.det(step.jacobian()).item() - 1) for step in _steps(subject, generator)
    ]
    return max(errors), ROUNDING, "largest |det J − 1|"


def measure_symplectic(
    subject: HasSteps | HasLayers | HasPhaseStep, generator: torch.Generator
) -> Outcome:
    """Compare JᵀΩJ with Ω."""
    if isinstance(subject, HasPhaseStep):
        return _symplectic_phase_step(subject, generator)
    worst = 0.0
    for step in _steps(subject, generator):
        jacobian, form = step.jacobian(), _canonical_form(step.state[0].shape[-1])
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, ROUNDING, "largest entry of |JᵀΩJ − Ω|"


def _canonical_form(size: int) -> Tensor:
    """Return [[0, I], [−I, 0]] for `size` positions and as many momenta."""
    zero, eye = torch.zeros(size, size).double(), torch.eye(size).double()
    return torch.cat([torch.cat([zero, eye], 1), torch.cat([-eye, zero], 1)])


def _symplectic_phase_step(model: HasPhaseStep, generator: torch.Generator) -> Outcome:
    """Compare DᵀJD with J for the Jacobian D of a step in phase space."""
    states = model.phase_states(PHASE_STATES, generator)
    form, worst = _canonical_form(states.shape[-1] // 2).to(states), 0.0
    for state in states:
        rows = torch.autograd.functional.jacobian(model.phase_step, state.unsqueeze(0))
        assert isinstance(rows, Tensor)
        jacobian = rows.reshape(len(form), len(form))
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, 1e-10, "largest entry of |DᵀJD − J| of a step"


@torch.no_grad()
def measure_bounded_state(cell: HasStateBound, generator: torch.Generator) -> Outcome:
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


@torch.no_grad()
def measure_slower_vanishing(cell: HasMomentum, generator: torch.Generator) -> Outcome:
    """Multiply ∂h'/∂h over 50 steps, with and without momentum, on the same small input."""
    x = 0.1 * torch.randn(50, 1, cell.input_size, generator=generator, dtype=torch.float64)
    pushes, matrix = cell.project(x)[:, 0], cell.weight_hh
    plain = h = torch.zeros(cell.hidden_size, dtype=torch.float64)
    velocity = torch.zeros_like(h)
    without = with_momentum = torch.eye(cell.hidden_size, dtype=torch.float64)
    for push in pushes:
        plain = torch.tanh(matrix @ plain + cell.input_filter.step * push)
        without = (1 - plain**2).unsqueeze(1) * matrix @ without
        slope = torch.diag(cell.input_filter.momentum / (1 - h**2))
        velocity = cell.input_filter.momentum * velocity + cell.input_filter.step * push
        h = torch.tanh(matrix @ h + velocity)
        with_momentum = (1 - h**2).unsqueeze(1) * (matrix + slope) @ with_momentum
    norms = [torch.linalg.matrix_norm(p, 2).item() for p in (without, with_momentum)]
    return norms[0] / norms[1], 1.0, "‖∂h_T/∂h_0‖ without momentum over that with it, T = 50"


def measure_unit_gradient(cell: HasEquilibrium, generator: torch.Generator) -> Outcome:
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


def _noise(like: Tensor, generator: torch.Generator, size: float = 0.5) -> Tensor:
    return size * torch.randn(like.shape, generator=generator, dtype=like.dtype)


def measure_isometric_matrix(cell: HasRecurrentMatrix, generator: torch.Generator) -> Outcome:
    """Compare WᵀW with the identity."""
    matrix = cell.recurrent_matrix().detach()
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    # Weights are initialised in single precision, which limits how orthogonal they are.
    return (matrix.mH @ matrix - identity).abs().max().item(), 1e-5, "largest entry of |WᵀW − I|"


@torch.no_grad()
def measure_singular_band(cell: HasMargin, generator: torch.Generator) -> Outcome:
    """Perturb all free parameters, as training would, and compute the singular values."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator))
    values = torch.linalg.svdvals(cell.recurrent_matrix())
    # The bases are initialised in single precision.
    return (values - 1).abs().max().item(), cell.margin + 1e-5, "largest |σ − 1|"


@torch.no_grad()
def measure_scaled_spectrum(cell: HasSpectrum, generator: torch.Generator) -> Outcome:
    """Perturb all free parameters and compare eigenvalue moduli with those declared."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator, 0.2))
    moduli = torch.linalg.eigvals(cell.recurrent_matrix()).abs().sort().values
    error = (moduli - cell.spectrum().sort().values).abs().max().item()
    return error, 1e-5, "largest difference between |λ| and γ"


@torch.no_grad()
def measure_polynomial_growth(cell: HasFreeMatrix, generator: torch.Generator) -> Outcome:
    """With γ = 1 and a random T, measure the power of t with which ‖Wᵗ‖ grows for large t."""
    _, scales, _, lower = cell.free_parameters()
    scales.fill_(1.0)
    lower.add_(_noise(lower, generator, 0.2))
    matrix, norms = cell.recurrent_matrix(), []
    for _ in range(12):
        matrix = matrix @ matrix
        norms.append(torch.linalg.matrix_norm(matrix, 2).log2().item())
    # Between t and 4t; a power of t larger than the number of blocks would be exponential.
    power = (norms[-1] - norms[-3]) / 2
    return power, len(scales) - 1 + 0.1, "power p with ‖Wᵗ‖ ~ tᵖ at t = 4096"


@torch.no_grad()
def measure_fixed_state(cell: HasSteps, generator: torch.Generator) -> Outcome:
    """Compare the bytes of a state after many steps with those after a few."""
    few, many = (
        sum(part.nbytes for part in _state_after(cell, steps, generator))
        for steps in (FEW_STEPS, MANY_STEPS)
    )
    return abs(many - few), 0, f"bytes more after {MANY_STEPS} steps than after {FEW_STEPS}"


def measure_direct_path(cell: HasMemory, generator: torch.Generator) -> Outcome:
    """Compare ∂s/∂m of one step, for a stored state m, with a (I + (m − c) ∂e/∂mᵀ).

    Only states that are still stored after the step count: the step discards the first slot.
    """
    state = _state_after(cell, FEW_STEPS * 5, generator)
    projected = cell.project(
        torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    )
    constants, worst = cell.constants(), 0.0
    query, _, memory = cell.split(state)
    slots, scores, occupied = cell.as_slots(memory, 1)
    hidden = state[: len(state) - len(memory)]

    def advanced(slots: Tensor) -> tuple[Tensor, ...]:
        return cell.advance(
            projected, (*hidden, *cell.from_slots(slots, scores, occupied)), constants
        )

    after = advanced(slots)
    states, _, valid = (part.detach() for part in cell.as_slots(cell.split(after)[2], 1))
    weights = cell.weights(query, states, valid)
    context = (weights.unsqueeze(-1) * states).sum(1)[0]
    gradient = jacobian(lambda slots: advanced(slots)[1][0], slots)
    assert isinstance(gradient, Tensor)
    factor = FACTORS.get(cell.attention.mix)
    mixing = cell.attention.mixing
    for before in range(1, slots.shape[1]):
        matches = (states[0] == slots[0, before]).all(-1) & (valid[0] != 0)
        if not occupied[0, before] or not bool(matches.any()):
            continue
        index = int(matches.nonzero()[0])
        slope = jacobian(
            lambda m, index=index: _score(cell, query, states, valid, index, m), states[0, index]
        )
        assert isinstance(slope, Tensor)
        direct = torch.eye(len(context)).double() + torch.outer(states[0, index] - context, slope)
        reads = weights[0, index] * direct
        expected = factor * reads if factor else mixing[:, len(context) :] @ reads
        worst = max(worst, (gradient[:, 0, before] - expected).abs().max().item())
    return worst, 1e-9, "largest entry of ∂s/∂m − a (I + (m − c) ∂e/∂mᵀ)"


def _score(
    cell: HasMemory, query: Tensor, states: Tensor, valid: Tensor, index: int, m: Tensor
) -> Tensor:
    """Return the logarithm of a stored state's weight as a function of it, up to a constant."""
    varied = states.index_copy(1, torch.tensor([index]), m.view(1, 1, -1))
    weights = cell.weights(query, varied, valid)[0]
    other = (index + 1) % len(weights) if len(weights) > 1 else index
    # The difference of two logarithms is that of two scores, one of which does not depend on m.
    while not valid[0, other] or other == index:
        other = (other + 1) % len(weights)
    return weights[index].log() - weights[other].log()


def _state_after(cell: HasSteps, steps: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = torch.randn(steps, 1, cell.input_size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        state, projected, constants = cell.initial_state(1, x), cell.project(x), cell.constants()
        for projected_t in projected:
            state = cell.advance(projected_t, state, constants)
    return state
