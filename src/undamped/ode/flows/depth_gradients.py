"""Gradients along depth: a = ∂L/∂h(t), and the parameters' part y = (a ∂f/∂θ)ᵀ, ∫ y dt = dL/dθ.

Both are vector-Jacobian products at waypoints: a through the solve itself, y through the field.
With `create_graph` both can be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.ode.flows.waypoints import State, Waypoint
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
