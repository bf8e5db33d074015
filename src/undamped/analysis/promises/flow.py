"""Promises about a flow in continuous time or depth.

What is promised is promised of the ODE: the flow of a model is solved far more finely here than
the model itself asks for.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.promises import (
    HasDampedFlow,
    HasFlow,
    HasFlowJacobian,
    HasLayerJacobian,
    HasVolumeRate,
)
from undamped.analysis.promises.result import Result
from undamped.ode import solve
from undamped.ode.flows.shared_flow import SharedFlow
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.settings import choose_solver

STATES = 4
FINE = 1e-8
SOLVED = 1e-4
"""How far what was solved twice with the tolerance above may be off."""


@torch.no_grad()
def measure_stable_flow(
    subject: HasFlowJacobian | HasLayerJacobian, generator: torch.Generator
) -> Result:
    """Look at the Jacobian's eigenvalues of the flow at random states."""
    if isinstance(subject, HasLayerJacobian):
        y = torch.randn(8, subject.size, generator=generator, dtype=torch.float64)
        layers = range(min(4, subject.depth))
        jacobians = torch.cat([subject.flow_jacobian(layer, y) for layer in layers])
    else:
        x = torch.randn(32, subject.input_size, generator=generator, dtype=torch.float64)
        state = (torch.randn(32, subject.hidden_size, generator=generator, dtype=torch.float64),)
        jacobians = subject.flow_jacobian(subject.project(x), state)
    real = torch.linalg.eigvals(jacobians).real
    outside = max(real.max().item(), -subject.diffusion - real.min().item(), 0.0)
    return outside, 1e-9, "how far real parts lie outside [−γ, 0]"


def solve_finely(model: HasFlow) -> None:
    """Let a model solve its ODE much more finely than it was built to."""
    assert isinstance(model, torch.nn.Module)
    for part in model.modules():
        if isinstance(part, SolvingModule):
            part.method, part.step_size, part.gradient = "dopri5", None, "backprop"
            part.rtol = part.atol = FINE
        shared = getattr(part, "shared", None)
        if isinstance(shared, SharedFlow):
            shared.method = choose_solver("rkmk4" if shared.field.turns else "rk4")
            shared.steps, shared.tolerance = None, FINE


@torch.no_grad()
def measure_invertible_flow(model: HasFlow, generator: torch.Generator) -> Result:
    """Carry random states along the flow and back again."""
    solve_finely(model)
    start, given = model.example(STATES, generator)
    end = model.carry(start, given)
    error = (model.carry_back(end, given) - start).abs().max().item()
    return error, SOLVED, "largest error after the flow forth and back"


def jacobian_of_flow(model: HasFlow, state: Tensor, given: object) -> Tensor:
    """Return ∂end/∂start for one state, all its numbers side by side."""
    rows = torch.autograd.functional.jacobian(lambda s: model.carry(s, given), state)
    assert isinstance(rows, Tensor)
    return rows.reshape(state.numel(), state.numel())


@torch.no_grad()
def measure_paired_spectrum(model: HasDampedFlow, generator: torch.Generator) -> Result:
    """Look at the eigenvalues of the field's Jacobian: with each λ there is −γ − λ."""
    state, _ = model.example(1, generator)
    state = state + torch.randn(state.shape, generator=generator, dtype=state.dtype)
    with torch.enable_grad():
        rows = torch.autograd.functional.jacobian(lambda s: model.derivative(0.3, s), state)
    assert isinstance(rows, Tensor)
    values = torch.linalg.eigvals(rows.reshape(state.numel(), state.numel()))
    sums = values.unsqueeze(0) + values.unsqueeze(1) + model.damping
    error = sums.abs().min(dim=1).values.max().item()
    return error, 1e-5, "largest distance of an eigenvalue from −γ less another"


def measure_volume_rate(model: HasVolumeRate, generator: torch.Generator) -> Result:
    """Compare the determinant of the flow over a time of one with the rate that is claimed."""
    solve_finely(model)
    state, _ = model.example(1, generator)
    size = state.numel()
    with torch.no_grad():
        field = model.field_now()

    def with_tangents(t: Tensor, both: Tensor) -> Tensor:
        """Carry small displacements beside the state, each a row below it."""
        rows, there = torch.autograd.functional.jacobian, both[0].reshape(state.shape)
        jacobian = rows(lambda s: field(t, s), there, vectorize=True)
        assert isinstance(jacobian, Tensor)
        slope = field(t, there).reshape(1, size)
        return torch.cat((slope, both[1:] @ jacobian.reshape(size, size).T))

    eye = torch.eye(size, dtype=state.dtype)
    first = torch.cat((state.reshape(1, size), eye)).detach()
    with torch.no_grad():
        end = solve(
            with_tangents, first, [0.0, 1.0], method="rk4", options={"step_size": 1 / 16}
        ).final
    found = torch.linalg.slogdet(end[1:]).logabsdet.item()
    wanted = model.volume_rate(size).item()
    return abs(found - wanted), SOLVED, "how far log det of the flow is from what is claimed"


@torch.no_grad()
def measure_bounded_velocity(model: HasDampedFlow, generator: torch.Generator) -> Result:
    """See how far positions move over depth, from states with large momenta."""
    solve_finely(model)
    state, given = model.example(STATES, generator)
    state = 10 * state
    moved = (model.carry(state, given) - state).chunk(2, dim=1)[0].abs().max().item()
    return moved, model.end_of_depth * (1 + SOLVED), "furthest a position moved over depth"


def largest_state(model: HasFlow) -> int:
    """Return how many numbers the state of a flow has, of the size it is measured at."""
    return math.prod(model.example(1, torch.Generator().manual_seed(0))[0].shape)
