"""Gradients along depth: a = ∂L/∂h(t), and the parameters' share y = (a ∂f/∂θ)ᵀ, ∫ y dt = dL/dθ.

Both are had by vector products at waypoints: a is pulled back through the solve itself, y is one
more product with the field. With `create_graph` both can be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.ode.flows.waypoints import State, Time, Waypoint
from undamped.ode.gradients.refused import refuse_gradients

_TWICE = "gradients of a penalty on y: expected to be taken once, got a second time."


def adjoints(loss: Tensor, waypoints: Sequence[Waypoint], *, create_graph: bool) -> list[State]:
    """Return a = ∂L/∂h at every waypoint, in the form of its state.

    Args:
        loss: L, computed from where the waypoints led.
        waypoints: Where the solve passed.
        create_graph: Whether what is made of them will be differentiated.
    """
    parts = [part for waypoint in waypoints for part in waypoint.state]
    found = (
        torch.autograd.grad(
            loss, parts, create_graph=create_graph, retain_graph=True, allow_unused=True
        )
        if loss.requires_grad
        else [None] * len(parts)
    )
    if all(part is None for part in found):
        raise OptionError(
            explain(
                "loss",
                expected="one that was computed from the last answer of the model",
                got="one that does not depend on it",
                remedy="Call penalty(model, loss) right after the pass that the loss is made of.",
            )
        )
    filled = iter(
        torch.zeros_like(part) if gradient is None else gradient
        for part, gradient in zip(parts, found, strict=True)
    )
    return [tuple(next(filled) for _ in waypoint.state) for waypoint in waypoints]


def parameter_gradients(
    waypoints: Sequence[Waypoint],
    pulls: Sequence[State],
    parameters: Sequence[Tensor],
    *,
    create_graph: bool,
) -> Tensor:
    """Return y, the integrand of dL/dθ summed over the batch, at every waypoint, (waypoints, θ).

    Args:
        waypoints: Where the solve passed.
        pulls: a at each.
        parameters: θ.
        create_graph: Whether what is made of y will be differentiated.
    """
    if create_graph:
        return torch.stack(
            [
                _ParameterShare.apply(waypoint, *waypoint.state, *pull, *parameters)
                for waypoint, pull in zip(waypoints, pulls, strict=True)
            ]
        )
    if len({id(waypoint.field) for waypoint in waypoints}) == 1:
        reading = getattr(waypoints[0].field, "reading", None)
        if reading is not None:
            return _shares_through(waypoints, pulls, parameters, reading)
    return torch.stack(
        [
            _share(waypoint, waypoint.apart(), pull, parameters, create_graph=False)
            for waypoint, pull in zip(waypoints, pulls, strict=True)
        ]
    )


def _shares_through(
    waypoints: Sequence[Waypoint],
    pulls: Sequence[State],
    parameters: Sequence[Tensor],
    reading: Callable[[Sequence[Tensor]], Any],
) -> Tensor:
    """Return y where the field reads tensors that were made of θ, such as a path of parameters.

    The way from those tensors to θ is the same at all waypoints, and is gone once for all of them.
    """
    made = list(waypoints[0].field.context_tensors())  # type: ignore[attr-defined]
    copies = [tensor.detach().requires_grad_() for tensor in made]
    direct, through = [], []
    for waypoint, pull in zip(waypoints, pulls, strict=True):
        here = replace(waypoint, field=reading(copies))
        both = _share(here, here.apart(), pull, [*copies, *parameters], create_graph=False)
        split = [part.numel() for part in copies]
        *parts, rest = both.split([*split, len(both) - sum(split)])
        through.append([part.reshape(copy.shape) for part, copy in zip(parts, copies, strict=True)])
        direct.append(rest)
    total = torch.stack(direct)
    for number, tensor in enumerate(made):
        if not tensor.requires_grad:
            continue
        found = torch.autograd.grad(
            tensor,
            parameters,
            torch.stack([row[number] for row in through]),
            is_grads_batched=True,
            retain_graph=True,
            allow_unused=True,
        )
        rows = [
            part.new_zeros(len(total), part.numel()) if g is None else g.flatten(1)
            for g, part in zip(found, parameters, strict=True)
        ]
        total = total + torch.cat(rows, dim=1)
    return total


def _share(
    waypoint: Waypoint,
    state: State,
    pull: State,
    parameters: Sequence[Tensor],
    *,
    create_graph: bool,
) -> Tensor:
    """Return a ∂f/∂θ, flat, at a state that does not itself depend on θ."""
    with torch.enable_grad():
        slope = waypoint.slope(state[0] if len(state) == 1 else state)
        slopes = (slope,) if isinstance(slope, Tensor) else tuple(slope)
        pairs = [(f, a) for f, a in zip(slopes, pull, strict=True) if f.requires_grad]
        found = torch.autograd.grad(
            [f for f, _ in pairs],
            parameters,
            [a for _, a in pairs],
            create_graph=create_graph,
            # What the parameters' own flow was made of is asked again at every waypoint.
            retain_graph=True,
            materialize_grads=True,
            allow_unused=True,
        )
        return torch.cat([part.reshape(-1) for part in found])


class _ParameterShare(torch.autograd.Function):
    """y as a function of state, adjoint and parameters, each taken by itself.

    On the graph of a solve the state depends on the parameters too, and a derivative by them
    would go that way as well, which ∂f/∂θ does not.
    """

    @staticmethod
    def forward(ctx: Any, waypoint: Waypoint, *tensors: Tensor) -> Tensor:
        """Return y."""
        count = len(waypoint.state)
        free = tuple(part.detach().requires_grad_() for part in tensors[: 2 * count])
        ctx.leaves = [*free, *tensors[2 * count :]]
        own = tensors[2 * count :]
        ctx.made = _share(waypoint, free[:count], free[count:], own, create_graph=True)
        return ctx.made.detach()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, incoming: Tensor
    ) -> tuple[Any, ...]:
        """Return its gradients, which can be taken once."""
        found = torch.autograd.grad(
            ctx.made, ctx.leaves, incoming, allow_unused=True, retain_graph=True
        )
        return None, *refuse_gradients(found, (incoming, *ctx.leaves), _TWICE)


def sizes(pulls: Sequence[State]) -> Tensor:
    """Return ‖a‖ of every sample at every waypoint, (waypoints, batch)."""
    squares = [sum(part.reshape(len(part), -1).square().sum(1) for part in pull) for pull in pulls]
    return torch.stack(squares).sqrt()  # type: ignore[arg-type]


def spans(waypoints: Sequence[Waypoint]) -> Tensor:
    """Return the lengths of the pieces between waypoints, (pieces, 1) or (pieces, batch)."""
    like = waypoints[0].state[0]
    times = torch.stack([_row(waypoint.time, like) for waypoint in waypoints])
    return times.diff(dim=0).abs()


def coherence(y: Tensor, lengths: Tensor) -> float:
    """Return ‖∫ y dt‖/∫ ‖y‖ dt, from 0 (all cancels) to 1 (all points one way).

    Args:
        y: At the waypoints, (waypoints, θ).
        lengths: Of the pieces between, (pieces, 1).
    """
    whole = torch.linalg.vector_norm(trapezium(y, lengths))
    apart = trapezium(torch.linalg.vector_norm(y, dim=1, keepdim=True), lengths)
    return float(whole / apart) if float(apart) > 0 else 0.0


def trapezium(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the integral over depth of values at the waypoints, (waypoints, …).

    Args:
        values: What is integrated.
        lengths: Of the pieces between, (pieces, 1 or …).
    """
    return ((values[1:] + values[:-1]) / 2 * lengths).sum(0)


def _row(time: Time, like: Tensor) -> Tensor:
    return torch.as_tensor(time).to(like).reshape(-1)
