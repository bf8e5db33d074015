"""Gradients along depth: a = ∂L/∂h(t), the parameters' part y = (a ∂f/∂θ)ᵀ, and penalties on them.

Both are vector-Jacobian products at waypoints: a through the solve itself, y through the field.
Penalties measure how fast ‖a‖ or ‖y‖ change and how far y rotates; training on them takes gradients
of gradients.

Equation:
    ȧ = −a J,  d log‖a‖/dt = −a J aᵀ/‖a‖²,  y = (a ∂f/∂θ)ᵀ,  dL/dθ = ∫ y dt
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.ode.flows.solving import State, Waypoint, Waypoints
from undamped.ode.gradients.refused import refuse_gradients

_TWICE = "Gradients of a penalty on y can be taken once only."


def adjoints(loss: Tensor, waypoints: Sequence[Waypoint], *, create_graph: bool) -> list[State]:
    """Return a = ∂L/∂h at every waypoint, in the form of its state.

    Args:
        loss: L, computed from the end of the solve.
        waypoints: States along the solve.
        create_graph: Whether functions of the result will be differentiated.
    """
    parts = [part for waypoint in waypoints for part in waypoint.state]
    gradients = (
        torch.autograd.grad(
            loss, parts, create_graph=create_graph, retain_graph=True, allow_unused=True
        )
        if loss.requires_grad
        else [None] * len(parts)
    )
    if all(part is None for part in gradients):
        raise OptionError(
            "The loss does not depend on the last output of the model. Call penalty(model, loss) "
            "right after the forward pass that the loss is computed from."
        )
    filled = iter(
        torch.zeros_like(part) if gradient is None else gradient
        for part, gradient in zip(parts, gradients, strict=True)
    )
    return [tuple(next(filled) for _ in waypoint.state) for waypoint in waypoints]


def parameter_gradients(
    waypoints: Sequence[Waypoint],
    cotangents: Sequence[State],
    parameters: Sequence[Tensor],
    *,
    create_graph: bool,
) -> Tensor:
    """Return y, the integrand of dL/dθ summed over the batch, at every waypoint, (waypoints, θ).

    Args:
        waypoints: States along the solve.
        cotangents: a at each.
        parameters: θ.
        create_graph: Whether functions of y will be differentiated.
    """
    if create_graph:
        return torch.stack(
            [
                _ParameterPart.apply(waypoint, *waypoint.state, *adjoint, *parameters)
                for waypoint, adjoint in zip(waypoints, cotangents, strict=True)
            ]
        )
    if len({id(waypoint.field) for waypoint in waypoints}) == 1:
        reading = getattr(waypoints[0].field, "reading", None)
        if reading is not None:
            return _parts_through(waypoints, cotangents, parameters, reading)
    return torch.stack(
        [
            _parameter_part(waypoint, waypoint.detached(), adjoint, parameters, create_graph=False)
            for waypoint, adjoint in zip(waypoints, cotangents, strict=True)
        ]
    )


def _parts_through(
    waypoints: Sequence[Waypoint],
    cotangents: Sequence[State],
    parameters: Sequence[Tensor],
    reading: Callable[[Sequence[Tensor]], Any],
) -> Tensor:
    """Return y where the field reads tensors computed from θ, such as a path of parameters.

    The graph from those tensors to θ is the same at all waypoints, and is followed once.
    """
    tensors = list(waypoints[0].field.context_tensors())  # type: ignore[attr-defined]
    copies = [tensor.detach().requires_grad_() for tensor in tensors]
    direct, through = [], []
    for waypoint, adjoint in zip(waypoints, cotangents, strict=True):
        copied = replace(waypoint, field=reading(copies))
        both = _parameter_part(
            copied, copied.detached(), adjoint, [*copies, *parameters], create_graph=False
        )
        split = [part.numel() for part in copies]
        *parts, rest = both.split([*split, len(both) - sum(split)])
        through.append([part.reshape(copy.shape) for part, copy in zip(parts, copies, strict=True)])
        direct.append(rest)
    total = torch.stack(direct)
    for number, tensor in enumerate(tensors):
        if not tensor.requires_grad:
            continue
        gradients = torch.autograd.grad(
            tensor,
            parameters,
            torch.stack([row[number] for row in through]),
            is_grads_batched=True,
            retain_graph=True,
            allow_unused=True,
        )
        rows = [
            part.new_zeros(len(total), part.numel()) if g is None else g.flatten(1)
            for g, part in zip(gradients, parameters, strict=True)
        ]
        total = total + torch.cat(rows, dim=1)
    return total


def _parameter_part(
    waypoint: Waypoint,
    state: State,
    adjoint: State,
    parameters: Sequence[Tensor],
    *,
    create_graph: bool,
) -> Tensor:
    """Return a ∂f/∂θ, flat, at a state that does not itself depend on θ."""
    with torch.enable_grad():
        slope = waypoint.slope(state[0] if len(state) == 1 else state)
        slopes = (slope,) if isinstance(slope, Tensor) else tuple(slope)
        pairs = [(f, a) for f, a in zip(slopes, adjoint, strict=True) if f.requires_grad]
        gradients = torch.autograd.grad(
            [f for f, _ in pairs],
            parameters,
            [a for _, a in pairs],
            create_graph=create_graph,
            # The graph of the parameters' own flow is used again at every waypoint.
            retain_graph=True,
            materialize_grads=True,
            allow_unused=True,
        )
        return torch.cat([part.reshape(-1) for part in gradients])


class _ParameterPart(torch.autograd.Function):
    """y as a function of state, adjoint and parameters, each taken by itself.

    On the graph of a solve the state depends on the parameters too, and a derivative by them
    would go that way as well, which ∂f/∂θ does not.
    """

    @staticmethod
    def forward(ctx: Any, waypoint: Waypoint, *tensors: Tensor) -> Tensor:
        """Return y."""
        count = len(waypoint.state)
        free = tuple(part.detach().requires_grad_() for part in tensors[: 2 * count])
        parameters = tensors[2 * count :]
        ctx.leaves, state, adjoint = [*free, *parameters], free[:count], free[count:]
        ctx.part = _parameter_part(waypoint, state, adjoint, parameters, create_graph=True)
        return ctx.part.detach()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, incoming: Tensor
    ) -> tuple[Any, ...]:
        """Return its gradients, which can be taken once."""
        gradients = torch.autograd.grad(
            ctx.part, ctx.leaves, incoming, allow_unused=True, retain_graph=True
        )
        return None, *refuse_gradients(gradients, (incoming, *ctx.leaves), _TWICE)


def sizes(cotangents: Sequence[State]) -> Tensor:
    """Return ‖a‖ of every sample at every waypoint, (waypoints, batch)."""
    squares = [
        sum(part.reshape(len(part), -1).square().sum(1) for part in adjoint)
        for adjoint in cotangents
    ]
    return torch.stack(squares).sqrt()  # type: ignore[arg-type]


def spans(waypoints: Sequence[Waypoint]) -> Tensor:
    """Return the lengths of the segments between waypoints, (segments, 1) or (segments, batch)."""
    like = waypoints[0].state[0]
    times = [torch.as_tensor(waypoint.time).to(like).reshape(-1) for waypoint in waypoints]
    return torch.stack(times).diff(dim=0).abs()


def coherence(y: Tensor, lengths: Tensor) -> float:
    """Return ‖∫ y dt‖/∫ ‖y‖ dt, from 0 (all cancels) to 1 (all has one direction).

    Args:
        y: At the waypoints, (waypoints, θ).
        lengths: Of the segments between, (segments, 1).
    """
    total = torch.linalg.vector_norm(trapezium(y, lengths))
    separate = trapezium(torch.linalg.vector_norm(y, dim=1, keepdim=True), lengths)
    return float(total / separate) if float(separate) > 0 else 0.0


def trapezium(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the integral over depth of values at the waypoints, (waypoints, …).

    The lengths of the segments between are (segments, 1 or …).
    """
    return ((values[1:] + values[:-1]) / 2 * lengths).sum(0)


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
