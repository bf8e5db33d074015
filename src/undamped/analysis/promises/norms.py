"""Promises about what a flow in depth keeps: norms, forms, matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.promises import (
    HasAdjointBound,
    HasBoundedPath,
    HasConserved,
    HasFlow,
    HasKeptForm,
    HasOrthogonalPath,
    HasSkewPath,
)
from undamped.analysis.promises.flow import SOLVED, STATES, jacobian_of_flow, solve_finely
from undamped.analysis.promises.result import Result
from undamped.ode.flows.depth_gradients import adjoints, sizes
from undamped.ode.flows.waypoints import Waypoints

ROUNDED = 1e-12
"""How far from exact what only rounding changes may be."""
DEPTHS = 23
"""At how many depths a path is looked at: not those of any grid."""


def _depths(model: HasOrthogonalPath | HasSkewPath | HasBoundedPath) -> Tensor:
    return torch.linspace(0, model.end_of_depth, DEPTHS, dtype=torch.float64)


@torch.no_grad()
def measure_conserved(model: HasConserved, generator: torch.Generator) -> Result:
    """Compare what is conserved at both ends of the flow."""
    solve_finely(model)
    start, given = model.example(STATES, generator)
    before = model.conserved(start)
    after = model.conserved(model.carry(start, given))
    error = ((after - before).abs() / before.abs().clamp_min(1.0)).max().item()
    return error, SOLVED, "largest change of what is conserved, relative to it"


def measure_kept_form(model: HasKeptForm, generator: torch.Generator) -> Result:
    """Carry the form along the flow: MᵀSM."""
    solve_finely(model)
    state, given = model.example(1, generator)
    flow, form = jacobian_of_flow(model, state, given), model.kept_form()
    return (flow.mT @ form @ flow - form).abs().max().item(), SOLVED, "largest entry of |MᵀSM − S|"


def measure_isometric_flow(model: HasFlow, generator: torch.Generator) -> Result:
    """Compare norms of states and of gradients at both ends, with the model's own steps."""
    state, given = model.example(STATES, generator)
    start = state.detach().clone().requires_grad_()
    end = model.carry(start, given)
    pull = torch.randn(end.shape, generator=generator, dtype=end.dtype)
    (back,) = torch.autograd.grad(end, start, pull)
    ratios = torch.cat((end.norm(dim=1) / start.norm(dim=1), back.norm(dim=1) / pull.norm(dim=1)))
    return (ratios - 1).abs().max().item(), ROUNDED, "largest change of a norm, relative to it"


def measure_bounded_adjoint(model: HasAdjointBound, generator: torch.Generator) -> Result:
    """Follow random gradients back through depth, and compare their norms with the bound."""
    solve_finely(model)
    state, given = model.example(STATES, generator)
    met = Waypoints(12)
    with model.flow.passing_through(met):
        end = model.carry(state.detach().requires_grad_(), given)
    pull = torch.randn(end.shape, generator=generator, dtype=end.dtype)
    norms = sizes(adjoints((end * pull).sum(), met, create_graph=False)).log()
    moved = (norms - norms[-1]).abs().amax(1)  # (waypoints,)
    allowed = model.adjoint_exponents(torch.tensor([float(w.time) for w in met]).to(norms))
    beyond = (moved - allowed).max().item()
    return beyond, SOLVED, "how far log‖a(t)‖ was beyond its bound, at most"


@torch.no_grad()
def measure_orthogonal_path(model: HasOrthogonalPath, generator: torch.Generator) -> Result:
    """Compare WᵀW with the identity at many depths."""
    weights = model.weights_at(_depths(model))
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype)
    return (weights.mT @ weights - eye).abs().max().item(), ROUNDED, "largest entry of |WᵀW − I|"


@torch.no_grad()
def measure_isospectral(model: HasSkewPath, generator: torch.Generator) -> Result:
    """Compare the eigenvalues at many depths with those at the beginning."""
    values = torch.linalg.eigvals(model.skew_at(_depths(model))).imag.sort(dim=-1).values
    error = (values - values[0]).abs().max().item()
    return error, 1e-10, "largest change of an eigenvalue"


@torch.no_grad()
def measure_bounded_path(model: HasBoundedPath, generator: torch.Generator) -> Result:
    """Compare how far every parameter has come with how far it may."""
    times = _depths(model)
    path = model.path_at(times)
    moved = (path - path[0]).abs().flatten(1).amax(1)
    beyond = (moved - model.path_rate() * times).max().item()
    return beyond, SOLVED, "how far a parameter came beyond its bound, at most"
