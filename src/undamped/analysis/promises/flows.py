"""Promises about a flow in continuous time or depth: invertibility, volume, norms, densities.

The promises concern the exact ODE, so its solver uses far smaller tolerances here than the model
itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.promises import (
    HasAdjointBound,
    HasBoundedPath,
    HasConserved,
    HasDampedFlow,
    HasDensity,
    HasFlow,
    HasFlowJacobian,
    HasLayerJacobian,
    HasOrthogonalPath,
    HasPreservedForm,
    HasSkewPath,
    HasVolumeRate,
)
from undamped.analysis.promises.cells import Outcome
from undamped.ode import solve
from undamped.ode.flows.depth_gradients import adjoints, sizes
from undamped.ode.flows.shared_flow import SharedFlow
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.flows.waypoints import Waypoints
from undamped.ode.settings import choose_solver

STATES = 4
FINE = 1e-8
SOLVED = 1e-4
"""Limit of errors between two solutions with the tolerance above."""
ROUNDED = 1e-12
"""Limit of errors that come from rounding alone."""
DEPTHS = 23
"""Number of depths at which a path is evaluated; they lie on no solver grid."""
GRID = 100
"""Points along each side of the grid on which a density is integrated."""


@torch.no_grad()
def measure_stable_flow(
    subject: HasFlowJacobian | HasLayerJacobian, generator: torch.Generator
) -> Outcome:
    """Compute the eigenvalues of the flow's Jacobian at random states."""
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
    """Set the tolerances of all ODEs of a model far below those it was built with."""
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
def measure_invertible_flow(model: HasFlow, generator: torch.Generator) -> Outcome:
    """Integrate random states along the flow and back."""
    solve_finely(model)
    start, context = model.example(STATES, generator)
    end = model.carry(start, context)
    error = (model.carry_back(end, context) - start).abs().max().item()
    return error, SOLVED, "largest error after the flow forward and back"


def _flow_jacobian(model: HasFlow, state: Tensor, context: object) -> Tensor:
    """Return ∂end/∂start for one flattened state."""
    rows = torch.autograd.functional.jacobian(lambda s: model.carry(s, context), state)
    assert isinstance(rows, Tensor)
    return rows.reshape(state.numel(), state.numel())


@torch.no_grad()
def measure_paired_spectrum(model: HasDampedFlow, generator: torch.Generator) -> Outcome:
    """Check that the eigenvalues of the field's Jacobian come in pairs λ and −γ − λ."""
    state, _ = model.example(1, generator)
    state = state + torch.randn(state.shape, generator=generator, dtype=state.dtype)
    with torch.enable_grad():
        rows = torch.autograd.functional.jacobian(lambda s: model.derivative(0.3, s), state)
    assert isinstance(rows, Tensor)
    values = torch.linalg.eigvals(rows.reshape(state.numel(), state.numel()))
    sums = values.unsqueeze(0) + values.unsqueeze(1) + model.damping
    error = sums.abs().min(dim=1).values.max().item()
    return error, 1e-5, "largest distance of an eigenvalue from −γ minus another"


def measure_volume_rate(model: HasVolumeRate, generator: torch.Generator) -> Outcome:
    """Compare the determinant of the flow over unit time with the declared rate."""
    solve_finely(model)
    state, _ = model.example(1, generator)
    size = state.numel()
    with torch.no_grad():
        field = model.field_now()

    def with_tangents(t: Tensor, both: Tensor) -> Tensor:
        """Return the derivative of the state (first row) and of displacements (other rows)."""
        y = both[0].reshape(state.shape)
        jacobian = torch.autograd.functional.jacobian(lambda s: field(t, s), y, vectorize=True)
        assert isinstance(jacobian, Tensor)
        slope = field(t, y).reshape(1, size)
        return torch.cat((slope, both[1:] @ jacobian.reshape(size, size).T))

    eye = torch.eye(size, dtype=state.dtype)
    first = torch.cat((state.reshape(1, size), eye)).detach()
    with torch.no_grad():
        end = solve(
            with_tangents, first, [0.0, 1.0], method="rk4", options={"step_size": 1 / 16}
        ).final
    log_det = torch.linalg.slogdet(end[1:]).logabsdet.item()
    error = abs(log_det - model.volume_rate(size).item())
    return error, SOLVED, "difference of log det of the flow from the declared rate"


@torch.no_grad()
def measure_bounded_velocity(model: HasDampedFlow, generator: torch.Generator) -> Outcome:
    """Measure how far positions move over depth, from states with large momenta."""
    solve_finely(model)
    state, context = model.example(STATES, generator)
    state = 10 * state
    distance = (model.carry(state, context) - state).chunk(2, dim=1)[0].abs().max().item()
    return distance, model.end_of_depth * (1 + SOLVED), "furthest a position moved over depth"


def state_size(model: HasFlow) -> int:
    """Return the number of entries of the state of a flow, at the size that is measured."""
    return math.prod(model.example(1, torch.Generator().manual_seed(0))[0].shape)


def _depths(model: HasOrthogonalPath | HasSkewPath | HasBoundedPath) -> Tensor:
    return torch.linspace(0, model.end_of_depth, DEPTHS, dtype=torch.float64)


@torch.no_grad()
def measure_conserved(model: HasConserved, generator: torch.Generator) -> Outcome:
    """Compare the conserved quantity at both ends of the flow."""
    solve_finely(model)
    start, context = model.example(STATES, generator)
    before = model.conserved(start)
    after = model.conserved(model.carry(start, context))
    error = ((after - before).abs() / before.abs().clamp_min(1.0)).max().item()
    return error, SOLVED, "largest relative change of the conserved quantity"


def measure_preserved_form(model: HasPreservedForm, generator: torch.Generator) -> Outcome:
    """Compare MᵀSM with S, for the Jacobian M of the flow and the form S."""
    solve_finely(model)
    state, context = model.example(1, generator)
    matrix, form = _flow_jacobian(model, state, context), model.preserved_form()
    error = (matrix.mT @ form @ matrix - form).abs().max().item()
    return error, SOLVED, "largest entry of |MᵀSM − S|"


def measure_isometric_flow(model: HasFlow, generator: torch.Generator) -> Outcome:
    """Compare norms of states and of gradients at both ends, with the solver of the model."""
    state, context = model.example(STATES, generator)
    start = state.detach().clone().requires_grad_()
    end = model.carry(start, context)
    grad_end = torch.randn(end.shape, generator=generator, dtype=end.dtype)
    (grad_start,) = torch.autograd.grad(end, start, grad_end)
    forward, backward = end.norm(dim=1) / start.norm(dim=1), grad_start.norm(dim=1)
    ratios = torch.cat((forward, backward / grad_end.norm(dim=1)))
    return (ratios - 1).abs().max().item(), ROUNDED, "largest relative change of a norm"


def measure_bounded_adjoint(model: HasAdjointBound, generator: torch.Generator) -> Outcome:
    """Propagate random gradients back through depth, and compare their norms with the bound."""
    solve_finely(model)
    state, context = model.example(STATES, generator)
    waypoints = Waypoints(12)
    with model.flow.passing_through(waypoints):
        end = model.carry(state.detach().requires_grad_(), context)
    grad_end = torch.randn(end.shape, generator=generator, dtype=end.dtype)
    norms = sizes(adjoints((end * grad_end).sum(), waypoints, create_graph=False)).log()
    change = (norms - norms[-1]).abs().amax(1)  # (waypoints,)
    bound = model.adjoint_exponents(torch.tensor([float(w.time) for w in waypoints]).to(norms))
    return (change - bound).max().item(), SOLVED, "largest excess of log‖a(t)‖ over its bound"


@torch.no_grad()
def measure_orthogonal_path(model: HasOrthogonalPath, generator: torch.Generator) -> Outcome:
    """Compare WᵀW with the identity at many depths."""
    weights = model.weights_at(_depths(model))
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype)
    return (weights.mT @ weights - eye).abs().max().item(), ROUNDED, "largest entry of |WᵀW − I|"


@torch.no_grad()
def measure_isospectral(model: HasSkewPath, generator: torch.Generator) -> Outcome:
    """Compare the eigenvalues at many depths with those at depth zero."""
    values = torch.linalg.eigvals(model.skew_at(_depths(model))).imag.sort(dim=-1).values
    error = (values - values[0]).abs().max().item()
    return error, 1e-10, "largest change of an eigenvalue"


@torch.no_grad()
def measure_bounded_path(model: HasBoundedPath, generator: torch.Generator) -> Outcome:
    """Compare the change of every parameter over depth with its bound."""
    times = _depths(model)
    path = model.path_at(times)
    change = (path - path[0]).abs().flatten(1).amax(1)
    excess = (change - model.path_rate() * times).max().item()
    return excess, SOLVED, "largest excess of a parameter's change over its bound"


def measure_log_determinant(model: HasDensity, generator: torch.Generator) -> Outcome:
    """Compare the change of the log-density with the determinant of the flow's Jacobian."""
    solve_finely(model)
    x, contexts = model.example(STATES, generator)
    worst = 0.0
    for k in range(STATES):
        point, context = x[k : k + 1], None if contexts is None else contexts[k : k + 1]
        log_det = torch.linalg.slogdet(_flow_jacobian(model, point, context)).logabsdet
        with torch.no_grad():
            base = model.base_log_prob(model.carry(point, context))
            change = model.log_prob(point, context) - base
        worst = max(worst, (change - log_det).abs().item())
    return worst, SOLVED, "largest |change of log p − log det|"


@torch.no_grad()
def measure_normalised_density(model: HasDensity, generator: torch.Generator) -> Outcome:
    """Integrate the density on a grid around the samples of the flow."""
    z = torch.randn(2000, model.size, generator=generator, dtype=torch.float64)
    _, context = model.example(1, generator)
    x = model.carry_back(z, None if context is None else context.expand(len(z), -1))
    low, high = x.min(0).values, x.max(0).values
    margin = 0.5 * (high - low)
    sides = [
        torch.linspace(a, b, GRID, dtype=torch.float64)
        for a, b in zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    ]
    points = torch.cartesian_prod(*sides).reshape(-1, model.size)
    context = None if context is None else context.expand(len(points), -1)
    cell = torch.stack([side[1] - side[0] for side in sides]).prod()
    total = (model.log_prob(points, context).exp().sum() * cell).item()
    return abs(total - 1), 1e-2, "|∫ p − 1|"
