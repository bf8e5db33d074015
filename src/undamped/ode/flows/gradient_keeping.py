"""Penalties on gradients along depth: how fast ‖a‖ or ‖y‖ change, how far y rotates.

Equation:
    ȧ = −a J,  d log‖a‖/dt = −a J aᵀ/‖a‖²,  y = (a ∂f/∂θ)ᵀ,  dL/dθ = ∫ y dt

Training on them takes gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from undamped.ode.flows.depth_gradients import (
    adjoints,
    parameter_gradients,
    sizes,
    spans,
    trapezium,
)
from undamped.ode.flows.waypoints import State, Waypoints

Penalty = Literal["none", "norm", "parameters", "direction", "every-direction"]
PENALTIES: tuple[Penalty, ...] = ("norm", "parameters", "direction", "every-direction")


def change_penalty(cotangents: Sequence[State], lengths: Tensor) -> Tensor:
    """Return ∫ (d log‖a‖/dt)² dt, the mean over samples, with log‖a‖ linear between waypoints.

    Straight lines make it as small as possible for the same values at the waypoints: it is at
    most the integral, and converges to it as the number of waypoints grows. Samples without any
    gradient at some waypoint are left out.

    Args:
        cotangents: a at the waypoints.
        lengths: Of the segments between, (segments, 1 or samples).
    """
    with torch.no_grad():
        scale = torch.stack([_largest(adjoint) for adjoint in cotangents])  # (waypoints, batch)
        nonzero = (scale > torch.finfo(scale.dtype).tiny).all(0)
        last = scale[-1][nonzero]
    if not bool(nonzero.any()):
        return sum(part.sum() for part in cotangents[0]) * 0.0  # type: ignore[return-value]
    # Relative to its end, since the squares of a small gradient would be zero.
    scaled = [
        tuple(part[nonzero] / last.reshape(-1, *(1,) * (part.dim() - 1)) for part in adjoint)
        for adjoint in cotangents
    ]
    widths = lengths[:, nonzero] if lengths.shape[1] > 1 else lengths
    return (sizes(scaled).log().diff(dim=0).square() / widths).sum(0).mean()


def norm_penalty(loss: Tensor, waypoints: Waypoints) -> Tensor:
    """Return ∫ (a J aᵀ/‖a‖²)² dt, the mean over samples: zero where ‖a‖ does not change."""
    cotangents = adjoints(loss, waypoints, create_graph=True)
    return change_penalty(cotangents, spans(waypoints))


def parameter_penalty(
    loss: Tensor, waypoints: Waypoints, parameters: Sequence[nn.Parameter]
) -> Tensor:
    """Return ∫ (y·ẏ/‖y‖²)² dt: zero where ‖y‖ does not change."""
    cotangents = adjoints(loss, waypoints, create_graph=True)
    y = parameter_gradients(waypoints, cotangents, parameters, create_graph=True)
    return change_penalty([(row[None],) for row in y], spans(waypoints))


def direction_penalty(
    loss: Tensor, waypoints: Waypoints, parameters: Sequence[nn.Parameter], cosine: float
) -> Tensor:
    """Return ∫ relu(γ − cos(y(t), y(T)))² dt: zero where y stays near its final direction.

    γ is `cosine`.
    """
    cotangents = adjoints(loss, waypoints, create_graph=True)
    y = parameter_gradients(waypoints, cotangents, parameters, create_graph=True)
    with torch.no_grad():
        scale = y.abs().amax(1, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
    cosines = torch.nn.functional.cosine_similarity(y / scale, (y / scale)[-1:])
    return trapezium(torch.relu(cosine - cosines).square()[:, None], spans(waypoints)).mean()


def every_direction_penalty(waypoints: Waypoints) -> Tensor:
    """Return an estimate of ∫ (v J vᵀ)² dt for random directions v, one for each sample.

    Its mean over directions is (tr(J)² + 2‖Sym J‖²)/(n(n + 2)): rotation costs nothing.
    """
    state = waypoints[0].state
    noise = [torch.randn_like(part.detach()) for part in state]
    length = sizes([tuple(noise)])[0]
    probe = [part / length.reshape(-1, *(1,) * (part.dim() - 1)) for part in noise]
    rates = []
    for waypoint in waypoints:
        with torch.enable_grad():
            slope = waypoint.slope()
        slopes = (slope,) if isinstance(slope, Tensor) else tuple(slope)
        rows = torch.autograd.grad(
            slopes, waypoint.state, probe, create_graph=True, materialize_grads=True
        )
        rate = sum((r * v).reshape(len(r), -1).sum(1) for r, v in zip(rows, probe, strict=True))
        rates.append(rate)
    return trapezium(torch.stack(rates).square(), spans(waypoints)).mean()


def _largest(adjoint: State) -> Tensor:
    return torch.stack([part.reshape(len(part), -1).abs().amax(1) for part in adjoint]).amax(0)
