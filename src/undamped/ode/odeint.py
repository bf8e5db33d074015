"""odeint and its kin, called the way torchdiffeq's are.

A program written for torchdiffeq runs with the import changed: names of methods and options,
events, callbacks and the arguments of the adjoint are understood as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.ode.compiler import left_alone
from undamped.ode.methods.solver import Solver
from undamped.ode.scipy_solver import scipy_values
from undamped.ode.settings import Gradient
from undamped.ode.solve import Backward, Tolerance, solve
from undamped.ode.translation import tolerances, translate


def odeint(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    method: str | Solver | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Callable[[Any, Any], Tensor] | None = None,
    gradient: Gradient | None = None,
    parameters: Iterable[Tensor] = (),
) -> Any:
    """Return the solution of dy/dt = func(t, y) at the times t, (outputs, …) or a tuple of such.

    Args:
        func: The field.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first; increasing or decreasing.
        rtol: Relative tolerance, 1e-7 if not given; one for every number or member if you like. It
            holds for the root mean square over a member of the state, as in torchdiffeq: among
            very many numbers that rest, a few that move are less accurate. Give these a member
            of their own, or a norm: `options={"norm": lambda errors: errors.abs().max()}`.
        atol: Absolute tolerance, 1e-9 if not given, likewise.
        method: A registry name or a solver; 'dopri5' if not given.
        options: Further settings by name, as in `undamped.ode.solve` or as in torchdiffeq.
        event_fn: A function of (t, y): the solve goes on from t[0], in the direction of t[1],
            until a number it returns changes its sign. Then time and solution (start and event)
            are returned, as a pair, and gradients reach both.
        gradient: `checkpoint`, `backprop`, `adjoint` or `reversible`. None takes checkpoints, and
            back-propagation for fields of which these cannot be had: those that draw random
            numbers, use tensors computed earlier without naming them in `parameters`, or are
            solved inside `torch.func` transforms.
        parameters: Tensors the field depends on that were computed from others.

    Example:
        >>> undamped.odeint(lambda t, y: -y, torch.ones(3), torch.linspace(0, 1, 5))
    """
    return _solve(
        func,
        y0,
        t,
        rtol=rtol,
        atol=atol,
        method=method,
        options=options,
        event_fn=event_fn,
        gradient=gradient,
        parameters=tuple(parameters),
    )


def odeint_adjoint(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    method: str | Solver | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Callable[[Any, Any], Tensor] | None = None,
    adjoint_rtol: float | None = None,
    adjoint_atol: float | None = None,
    adjoint_method: str | Solver | None = None,
    adjoint_options: dict[str, Any] | None = None,
    adjoint_params: Iterable[Tensor] | None = None,
) -> Any:
    """Return the solution, with gradients by the adjoint equation.

    Args:
        func: The field; its parameters, and leaves it uses, are found without being named.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first.
        rtol: Relative tolerance, 1e-7 if not given.
        atol: Absolute tolerance, 1e-9 if not given.
        method: A registry name or a solver; 'dopri5' if not given.
        options: Further settings by name.
        event_fn: As for `odeint`.
        adjoint_rtol: Relative tolerance of the backward pass; that of the forward pass if not
            given.
        adjoint_atol: Absolute tolerance, likewise.
        adjoint_method: Method of the backward pass, likewise.
        adjoint_options: Its options; `norm` may be "seminorm", which it is anyway, or a function
            of (t, y, adjoint, parameters…).
        adjoint_params: Further tensors the field depends on.

    Example:
        >>> undamped.odeint_adjoint(field, torch.ones(3), torch.linspace(0, 1, 5))
    """
    backward = None
    if adjoint_method is not None and adjoint_method != method and options and not adjoint_options:
        raise OptionError(
            explain(
                "adjoint_options",
                expected="to be given, since adjoint_method is another method",
                got="options for the forward pass only",
                remedy="Say adjoint_options={} for none.",
            )
        )
    if any(x is not None for x in (adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options)):
        chosen = {k: v for k, v in (options or {}).items() if k != "norm"}
        chosen = dict(adjoint_options) if adjoint_options is not None else chosen
        if chosen.get("norm") == "seminorm":
            del chosen["norm"]
        solver, found = translate(adjoint_method or method, chosen, func, y0, t)
        backward = Backward(
            solver,
            *tolerances(
                solver,
                found,
                rtol if adjoint_rtol is None else adjoint_rtol,
                atol if adjoint_atol is None else adjoint_atol,
            ),
            found,
        )
    return _solve(
        func,
        y0,
        t,
        rtol=rtol,
        atol=atol,
        method=method,
        options=options,
        event_fn=event_fn,
        gradient="adjoint",
        parameters=tuple(adjoint_params or ()),
        backward=backward,
    )


def odeint_event(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t0: Tensor,
    *,
    event_fn: Callable[[Any, Any], Tensor],
    reverse_time: bool = False,
    odeint_interface: Callable[..., Any] = odeint,
    **settings: Any,
) -> tuple[Tensor, Any]:
    """Return when an event happens, and the solution there; gradients reach both.

    Args:
        func: The field.
        y0: A tensor, or a tuple of tensors.
        t0: The start, a tensor with one number.
        event_fn: A function of (t, y); the event is where a number it returns changes its sign.
        reverse_time: Whether to look back in time.
        odeint_interface: `odeint` or `odeint_adjoint`.
        **settings: What that takes besides.
    """
    begin = t0.reshape(-1)
    t = torch.cat((begin, begin.detach() + (-1.0 if reverse_time else 1.0)))
    return odeint_interface(func, y0, t, event_fn=event_fn, **settings)


def odeint_dense(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t0: float | Tensor,
    t1: float | Tensor,
    *,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    method: str | Solver | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[[Any], Any]:
    """Return the solution as a function of time, with gradients.

    Args:
        func: The field.
        y0: A tensor, or a tuple of tensors.
        t0: The start.
        t1: The end.
        rtol: Relative tolerance, 1e-7 if not given.
        atol: Absolute tolerance, 1e-9 if not given.
        method: A registry name or a solver; 'dopri5' if not given.
        options: Further settings by name.

    Example:
        >>> solution = undamped.odeint_dense(lambda t, y: -y, torch.ones(3), 0.0, 1.0)
        >>> solution(0.3)
    """
    t = torch.stack([torch.as_tensor(time, dtype=torch.float64).reshape(()) for time in (t0, t1)])
    solver, found = translate(method, options, func, y0, t)
    rtol, atol = tolerances(solver, found, rtol, atol)
    how = {"rtol": rtol, "atol": atol, "method": solver, "options": found}
    dense = solve(func, y0, t, gradient="backprop", dense=True, **how).dense
    assert dense is not None
    return dense


@left_alone
def _solve(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Tolerance,
    atol: Tolerance,
    method: str | Solver | None,
    options: dict[str, Any] | None,
    event_fn: Callable[[Any, Any], Tensor] | None,
    gradient: Gradient | None,
    parameters: tuple[Tensor, ...],
    backward: Backward | None = None,
) -> Any:
    if isinstance(t, Tensor) and t.shape == (1,) and event_fn is None:
        return y0[None] if isinstance(y0, Tensor) else tuple(y[None] for y in y0)
    if method == "scipy_solver":
        return scipy_values(func, y0, t, rtol=rtol, atol=atol, options=options)
    solver, found = translate(method, options, func, y0, t)
    rtol, atol = tolerances(solver, found, rtol, atol)
    event = None
    if event_fn is not None:
        t, event = _towards(t), _any_of(event_fn, t, y0)
    solution = solve(
        func,
        y0,
        t,
        rtol=rtol,
        atol=atol,
        method=solver,
        options=found,
        gradient=gradient or "checkpoint",
        parameters=parameters,
        event=event,
        fall_back=gradient is None,
        backward=backward,
    )
    if event_fn is None:
        return solution.values
    if isinstance(y0, Tensor):
        return solution.event_time, torch.stack((solution.values[0], solution.event_state))
    pairs = zip(solution.values, solution.event_state, strict=True)
    return solution.event_time, tuple(torch.stack((v[0], state)) for v, state in pairs)


def _towards(t: Tensor) -> Tensor:
    """Return the start, and the end of time in the direction of the second of two times."""
    if not isinstance(t, Tensor) or t.dim() != 1 or len(t) != 2:
        raise OptionError(
            explain(
                "t of a solve with event_fn",
                expected="two times, the start and one that shows the direction",
                got=f"shape {tuple(t.shape)}" if isinstance(t, Tensor) else f"a {type(t).__name__}",
                remedy="Write torch.tensor([0.0, 1.0]); how far the second is does not matter.",
            )
        )
    return torch.cat((t[:1], torch.copysign(torch.full_like(t[:1], torch.inf), t[1:] - t[:1])))


def _any_of(
    event_fn: Callable[[Any, Any], Tensor], t: Tensor, y0: Any
) -> Callable[[Any, Any], Tensor]:
    """Return one number that changes its sign where any of several does.

    Args:
        event_fn: Returns them.
        t: Times, the start first.
        y0: The start.
    """
    with torch.no_grad():
        signs = torch.sign(torch.as_tensor(event_fn(t[0], y0)))
    if signs.numel() == 1:
        return event_fn
    return lambda t, y: (event_fn(t, y) * signs).min()
