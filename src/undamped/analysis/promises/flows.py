"""Promises about a flow in continuous time or depth: invertibility, volume, norms.

The promises concern the exact ODE, so its solver uses far smaller tolerances here than the model
itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.promises import Kind
from undamped.analysis.promises.measurement import Outcome, jacobian_of, measures
from undamped.models.continuous.shared_flow import SharedFlow
from undamped.ode import solve
from undamped.ode.flows.depth_gradients import adjoints, sizes
from undamped.ode.flows.solving import SolvingModule, Waypoints
from undamped.ode.settings import choose_solver

STATES = 4
FINE = 1e-8
SOLVED = 1e-4
"""Limit of errors between two solutions with the tolerance above."""
DEPTHS = 23
"""Number of depths at which a path is evaluated; they lie on no solver grid."""


@measures(Kind.STABLE_FLOW, needs="flow_jacobian diffusion")
@torch.no_grad()
def measure_stable_flow(subject: Any, generator: torch.Generator) -> Outcome:
    """Compute the eigenvalues of the flow's Jacobian at random states."""
    if hasattr(subject, "depth"):
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


def solve_finely(model: Any) -> None:
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


@measures(Kind.INVERTIBLE_FLOW, needs="example carry carry_back")
@torch.no_grad()
def measure_invertible_flow(model: Any, generator: torch.Generator) -> Outcome:
    """Integrate random states along the flow and back."""
    solve_finely(model)
    start, context = model.example(STATES, generator)
    end = model.carry(start, context)
    error = (model.carry_back(end, context) - start).abs().max().item()
    return error, SOLVED, "largest error after the flow forward and back"


@measures(Kind.PAIRED_SPECTRUM, needs="example derivative damping", by_jacobian=True)
@torch.no_grad()
def measure_paired_spectrum(model: Any, generator: torch.Generator) -> Outcome:
    """Check that the eigenvalues of the field's Jacobian come in pairs λ and −γ − λ."""
    state, _ = model.example(1, generator)
    state = state + torch.randn(state.shape, generator=generator, dtype=state.dtype)
    with torch.enable_grad():
        jacobian = jacobian_of(lambda s: model.derivative(0.3, s), state)
    values = torch.linalg.eigvals(jacobian)
    sums = values.unsqueeze(0) + values.unsqueeze(1) + model.damping
    error = sums.abs().min(dim=1).values.max().item()
    return error, 1e-5, "largest distance of an eigenvalue from −γ minus another"


@measures(Kind.VOLUME_RATE, needs="example field_now volume_rate", by_jacobian=True)
def measure_volume_rate(model: Any, generator: torch.Generator) -> Outcome:
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


@measures(Kind.BOUNDED_VELOCITY, needs="example carry end_of_depth")
@torch.no_grad()
def measure_bounded_velocity(model: Any, generator: torch.Generator) -> Outcome:
    """Measure how far positions move over depth, from states with large momenta."""
    solve_finely(model)
    state, context = model.example(STATES, generator)
    state = 10 * state
    distance = (model.carry(state, context) - state).chunk(2, dim=1)[0].abs().max().item()
    return distance, model.end_of_depth * (1 + SOLVED), "furthest a position moved over depth"


def _depths(model: Any) -> Tensor:
    return torch.linspace(0, model.end_of_depth, DEPTHS, dtype=torch.float64)


@measures(Kind.BOUNDED_ADJOINT, needs="example carry flow adjoint_exponents")
def measure_bounded_adjoint(model: Any, generator: torch.Generator) -> Outcome:
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


@measures(Kind.ISOSPECTRAL, needs="skew_at end_of_depth")
@torch.no_grad()
def measure_isospectral(model: Any, generator: torch.Generator) -> Outcome:
    """Compare the eigenvalues at many depths with those at depth zero."""
    values = torch.linalg.eigvals(model.skew_at(_depths(model))).imag.sort(dim=-1).values
    error = (values - values[0]).abs().max().item()
    return error, 1e-10, "largest change of an eigenvalue"


@measures(Kind.BOUNDED_PATH, needs="path_at path_rate end_of_depth")
@torch.no_grad()
def measure_bounded_path(model: Any, generator: torch.Generator) -> Outcome:
    """Compare the change of every parameter over depth with its bound."""
    times = _depths(model)
    path = model.path_at(times)
    change = (path - path[0]).abs().flatten(1).amax(1)
    excess = (change - model.path_rate() * times).max().item()
    return excess, SOLVED, "largest excess of a parameter's change over its bound"
