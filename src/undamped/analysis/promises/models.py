"""Promises of dynamical systems, irregular series, relational models and ODE solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from undamped._base.promises import Kind
from undamped.analysis.promises.measurement import Outcome, jacobian_of, measures

SAMPLES = 64
STATES = 4
EXACT = 1e-12
"""Limit of errors that come from rounding alone, relative to the terms of the sum."""
GAP_STATES = 16
LONGEST_GAP = 100.0
"""The longest gap between samples, in units of the typical gap."""
ROUNDING = 1e-11
TRIALS, LENGTH, ITERATIONS = 2, 5, 60
AGREED, LIMIT = 1e-7, 1e-5
"""Tolerance between the relations of both codes, and limit of the difference of the outputs."""
FLAT = 1e-12
"""Squared slope, relative to the largest, below which a direction counts as flat."""


def _slopes(function: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """Return the gradient of a function (batch,) of states (batch, size), by autograd."""
    with torch.enable_grad():
        leaf = states.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return gradient


def _energy_rates(
    model: Any, generator: torch.Generator, *, with_inputs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dE/dt at random states, the power supplied by inputs, and the scale of both."""
    states, u = model.example_states(SAMPLES, generator)
    inputs = u if with_inputs and u.shape[-1] else None
    with torch.no_grad():
        rates = model.derivative(states, inputs)
        supplied = model.supplied(states, inputs)
    slope = _slopes(model.energy, states)
    scale = slope.norm(dim=-1) * rates.norm(dim=-1) + supplied.abs()
    return (slope * rates).sum(-1), supplied, scale.clamp_min(torch.finfo(scale.dtype).tiny)


@measures(Kind.PRESERVED_ENERGY, needs="example_states derivative energy supplied")
def measure_preserved_energy(model: Any, generator: torch.Generator) -> Outcome:
    """Compare ∇E · f with zero, at random states without inputs."""
    rate, _, scale = _energy_rates(model, generator, with_inputs=False)
    return (rate.abs() / scale).max().item(), EXACT, "largest |∇E·f| / (|∇E| |f|)"


@measures(Kind.POWER_BALANCE, needs="example_states derivative energy supplied")
def measure_power_balance(model: Any, generator: torch.Generator) -> Outcome:
    """Compare ∇E · f with the power that random inputs supply."""
    rate, supplied, scale = _energy_rates(model, generator, with_inputs=True)
    worst = ((rate - supplied).abs() / scale).max().item()
    return worst, EXACT, "largest |dE/dt − yᵀu| / (|∇E| |f|)"


@measures(Kind.PASSIVE, needs="example_states derivative energy supplied")
def measure_passive(model: Any, generator: torch.Generator) -> Outcome:
    """Check that the energy never grows faster than the power supplied."""
    rate, supplied, scale = _energy_rates(model, generator, with_inputs=True)
    worst = ((rate - supplied) / scale).max().item()
    return worst, EXACT, "largest (dE/dt − yᵀu) / (|∇E| |f|)"


@measures(Kind.DIVERGENCE_FREE, needs="example_states derivative")
def measure_divergence_free(model: Any, generator: torch.Generator) -> Outcome:
    """Compare the trace of the field's Jacobian with zero."""
    states, _ = model.example_states(STATES, generator)
    worst = 0.0
    for state in states:
        jacobian = jacobian_of(model.derivative, state.unsqueeze(0))
        worst = max(worst, (jacobian.trace().abs() / jacobian.norm()).nan_to_num().item())
    return worst, EXACT, "largest |tr ∂f/∂z| / |∂f/∂z|"


@measures(Kind.POSITIVE_MASS, needs="example_states mass_matrix smallest_mass")
@torch.no_grad()
def measure_positive_mass(model: Any, generator: torch.Generator) -> Outcome:
    """Compute the smallest eigenvalue of the mass matrix at random states."""
    states, _ = model.example_states(SAMPLES, generator)
    matrices = model.mass_matrix(states)
    asymmetry = (matrices - matrices.mT).abs().max().item()
    if asymmetry > EXACT * matrices.abs().max().item():
        return asymmetry, 0.0, "largest entry of |M − Mᵀ|, which must be zero"
    lowest = torch.linalg.eigvalsh(matrices).min().item()
    deficit = max(0.0, model.smallest_mass - lowest)
    return deficit, 1e-9 * model.smallest_mass, "distance of an eigenvalue below its bound"


@measures(Kind.PRESERVED_CONSTRAINTS, needs="example_states derivative constraints")
def measure_preserved_constraints(model: Any, generator: torch.Generator) -> Outcome:
    """Compare the rates of change of constraints with zero, at random states and inputs."""
    states, u = model.example_states(SAMPLES, generator)
    with torch.no_grad():
        rates = model.derivative(states, u if u.shape[-1] else None)
    worst = 0.0
    for index in range(model.constraints(states).shape[-1]):
        slope = _slopes(lambda z, k=index: model.constraints(z)[..., k], states)
        scale = (slope.abs() * rates.abs()).sum(-1).clamp_min(torch.finfo(rates.dtype).tiny)
        worst = max(worst, ((slope * rates).sum(-1).abs() / scale).max().item())
    return worst, 1e-10, "largest rate of change of a constraint, relative to its terms"


def _states_and_gaps(
    network: Any, generator: torch.Generator
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Return random states, and two random gaps between samples for each."""
    state = tuple(
        torch.randn(GAP_STATES, size, generator=generator, dtype=torch.float64)
        for size in network.state_sizes
    )
    first, second = LONGEST_GAP * torch.rand(
        2, GAP_STATES, generator=generator, dtype=torch.float64
    )
    return state, first, second


def _norms(state: tuple[Tensor, ...]) -> Tensor:
    return torch.cat(state, dim=-1).norm(dim=-1)


@measures(Kind.CONTRACTING_GAPS, needs="state_sizes flow")
@torch.no_grad()
def measure_contracting_gaps(network: Any, generator: torch.Generator) -> Outcome:
    """Measure the largest growth of a norm over a gap."""
    state, gap, _ = _states_and_gaps(network, generator)
    growth = (_norms(network.flow(state, gap)) / _norms(state)).max().item()
    return growth, 1.0 + ROUNDING, "largest growth of a norm over a gap"


@measures(Kind.SEMIGROUP, needs="state_sizes flow")
@torch.no_grad()
def measure_semigroup(network: Any, generator: torch.Generator) -> Outcome:
    """Compare the flow over two gaps in succession with the flow over their sum."""
    state, first, second = _states_and_gaps(network, generator)
    successive = network.flow(network.flow(state, first), second)
    joint = network.flow(state, first + second)
    error = max((a - b).abs().max().item() for a, b in zip(successive, joint, strict=True))
    return error, ROUNDING, "largest difference between two gaps and their sum"


@measures(Kind.RELATIONS_ONLY, needs="features length relations decide")
def measure_relations_only(model: Any, generator: torch.Generator) -> Outcome:
    """Replace the codes of all inputs by others with the same relations; compare the outputs."""
    steps = model.length or LENGTH
    # With few features that vary, similarities are not so large that a softmax saturates.
    varying = min(model.features, steps + 2)
    worst = 0.0

    def padded(codes: Tensor) -> Tensor:
        return torch.nn.functional.pad(codes, (0, model.features - varying))

    for _ in range(TRIALS):
        codes = torch.randn(steps, 1, varying, generator=generator, dtype=torch.float64)
        replaced = _same_relations(lambda z: model.relations(padded(z)), codes, generator)
        with torch.no_grad():
            change = model.decide(padded(replaced)) - model.decide(padded(codes))
        worst = max(worst, change.abs().max().item())
    return worst, LIMIT, "largest change of an output when all inputs are replaced"


def _same_relations(
    relations: Callable[[Tensor], Tensor], codes: Tensor, generator: torch.Generator
) -> Tensor:
    """Return other codes with the same relations.

    Codes have more entries than relations, so that a least-squares fit from perturbed codes ends at
    other codes. It uses the steps of Levenberg and Marquardt, with more damping where they fail.
    """
    target = relations(codes).detach()
    direction = torch.randn(codes.shape, generator=generator, dtype=codes.dtype)
    for distance in (1.0, 0.3, 0.1, 0.01, 0.001):
        candidate, damping = codes + distance * direction, 1e-3
        residual = (relations(candidate).detach() - target).flatten()
        for _ in range(ITERATIONS):
            if residual.abs().max() <= AGREED:
                return candidate
            slope = jacobian(relations, candidate).reshape(len(residual), -1)
            # Relations depend on each other (a row of a softmax sums to one), so that some
            # directions have no slope at all; the residual vanishes along them, too.
            power, directions = torch.linalg.eigh(slope @ slope.T)
            inverse = torch.where(power > FLAT * power[-1], 1 / (power + damping * power[-1]), 0)
            step = slope.T @ (directions @ (inverse * (directions.T @ residual)))
            trial = candidate - step.reshape(codes.shape)
            trial_residual = (relations(trial).detach() - target).flatten()
            better = bool(trial_residual.norm() < residual.norm())
            if better:
                candidate, residual = trial, trial_residual
            damping = damping / 10 if better else damping * 10
    raise ArithmeticError("no other codes with the same relations were found")


@measures(Kind.A_STABLE, needs="start step")
@torch.no_grad()
def measure_a_stable(solver: Any, generator: torch.Generator) -> Outcome:
    """Take a step of y' = λ y for many λ in the left half-plane, some on the imaginary axis."""
    angle = math.pi * (0.5 + torch.rand(64, generator=generator, dtype=torch.float64))
    angle[:16] = math.pi / 2
    modulus = 10 ** (6 * torch.rand(64, generator=generator, dtype=torch.float64) - 2)
    growth = _amplification(solver, torch.polar(modulus, angle))
    return growth.max().item(), 1 + 1e-7, "largest |y'| / |y| of a step where Re λ ≤ 0"


@measures(Kind.L_STABLE, needs="start step")
@torch.no_grad()
def measure_l_stable(solver: Any, generator: torch.Generator) -> Outcome:
    """Take a step of y' = λ y with λ h far to the left."""
    far = torch.tensor([-1e6, -1e7, -1e8], dtype=torch.float64).to(torch.complex128)
    return _amplification(solver, far).max().item(), 1e-3, "|y'| / |y| of a step at λ h = −10⁶"


def _amplification(solver: Any, rates: Tensor) -> Tensor:
    """Return |y'| / |y| of a step of length one for every λ; complex numbers are real pairs."""

    def field(t: object, y: Tensor) -> Tensor:
        return torch.view_as_real(rates[: len(y)] * torch.view_as_complex(y))

    y = torch.zeros(len(rates), 2, dtype=torch.float64)
    y[:, 0] = 1
    return solver.step(field, 0.0, 1.0, solver.start(field, 0.0, y))[0][0].norm(dim=1)
