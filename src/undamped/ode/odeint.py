"""odeint and its variants, with the interface of torchdiffeq.

A program written for torchdiffeq runs with the import changed: names of methods and options,
events, callbacks and the arguments of the adjoint have the same meaning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import convert
from undamped.ode.loop.control import StepControl
from undamped.ode.methods.solver import Solver
from undamped.ode.scipy_solver import scipy_values
from undamped.ode.settings import (
    ADAPTIVE_ONLY,
    FIXED_ONLY,
    Gradient,
    choose_solver,
    has_fixed_steps,
)
from undamped.ode.solve import MethodOptions, Tolerance, solve, uncompiled

RENAMED = {"max_num_steps": "max_steps", "grid_points": "jump_t", "jump_locations": "jump_t"}
CONTROL = {"safety": "safety", "ifactor": "grow", "dfactor": "shrink"}
WITHOUT_EFFECT = ("dtype", "interp", "eps")
"""Options without effect: times are always in double precision, steps end at the output times, and
the field is evaluated just before or after a jump."""
OF_METHODS = {"max_order": "order", "max_iters": "corrections"}


class PartialSolutionWarning(RuntimeWarning):
    """A solve stopped early, and what it reached is returned."""


Y = TypeVar("Y", Tensor, tuple[Tensor, ...])


class _Settings(TypedDict, total=False):
    rtol: Tolerance
    atol: Tolerance
    method: str | Solver | None
    options: dict[str, Any] | None
    gradient: Gradient | None
    parameters: Iterable[Tensor]
    on_failure: Literal["raise", "partial"]


@overload
def odeint(
    func: Callable[[Any, Any], Any],
    y0: Y,
    t: Tensor,
    *,
    event_fn: None = None,
    **settings: Unpack[_Settings],
) -> Y: ...
@overload
def odeint(
    func: Callable[[Any, Any], Any],
    y0: Y,
    t: Tensor,
    *,
    event_fn: Callable[[Any, Any], Tensor],
    **settings: Unpack[_Settings],
) -> tuple[Tensor, Y]: ...
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
    on_failure: Literal["raise", "partial"] = "raise",
) -> Any:
    """Return the solution of dy/dt = func(t, y) at the times t, (outputs, …) or a tuple of such.

    Args:
        func: The field.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first; increasing or decreasing.
        rtol: Relative tolerance, 1e-7 by default; one for every number or tensor is possible. It
            applies to the root mean square over a tensor of the state, as in torchdiffeq: among
            very many numbers that rest, a few that move are less accurate. Put these into a
            separate tensor, or set `options={"norm": lambda errors: errors.abs().max()}`.
        atol: Absolute tolerance, 1e-9 by default, likewise.
        method: A registry name or a solver; 'dopri5' by default.
        options: Further settings by name, as in `undamped.ode.solve` or as in torchdiffeq.
        event_fn: A function of (t, y): the solve continues from t[0], in the direction of t[1],
            until a number it returns changes its sign. Then time and solution (start and event)
            are returned, as a pair, and gradients reach both.
        gradient: `checkpoint`, `backprop`, `adjoint` or `reversible`. None uses checkpoints, and
            back-propagation for fields that do not support them: those that draw random numbers,
            use tensors computed earlier without naming them in `parameters`, or are solved inside
            `torch.func` transforms.
        parameters: Tensors the field depends on that were computed from others.
        on_failure: What happens if the solve stops early: raise a `SolveError`, or return what was
            reached, NaN at later times, with a `PartialSolutionWarning` that says why.

    Example:
        >>> undamped.odeint(lambda t, y: -y, torch.ones(3), torch.linspace(0, 1, 5))
    """
    return _solve(
        func,
        y0,
        t,
        (method, rtol, atol, options),
        event_fn,
        gradient=gradient or "checkpoint",
        parameters=tuple(parameters),
        fall_back=gradient is None,
        on_failure=on_failure,
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
        func: The field; its parameters, and the leaves it uses, need not be named.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first.
        rtol: Relative tolerance, 1e-7 by default.
        atol: Absolute tolerance, 1e-9 by default.
        method: A registry name or a solver; 'dopri5' by default.
        options: Further settings by name.
        event_fn: As for `odeint`.
        adjoint_rtol: Relative tolerance of the backward pass; by default that of the forward pass.
        adjoint_atol: Absolute tolerance, likewise.
        adjoint_method: Method of the backward pass, likewise.
        adjoint_options: Its options; `norm` may be "seminorm", which is the default, or a function
            of (t, y, adjoint, parameters…).
        adjoint_params: Further tensors the field depends on.

    Example:
        >>> undamped.odeint_adjoint(field, torch.ones(3), torch.linspace(0, 1, 5))
    """
    backward = None
    if adjoint_method is not None and adjoint_method != method and options and not adjoint_options:
        raise OptionError(
            "adjoint_options is required, since adjoint_method differs from method and options are "
            "for the forward pass only. Pass adjoint_options={} for none."
        )
    if any(x is not None for x in (adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options)):
        selected = {k: v for k, v in (options or {}).items() if k != "norm"}
        selected = dict(adjoint_options) if adjoint_options is not None else selected
        if selected.get("norm") == "seminorm":
            del selected["norm"]
        back_rtol = rtol if adjoint_rtol is None else adjoint_rtol
        back_atol = atol if adjoint_atol is None else adjoint_atol
        back_method = adjoint_method or method
        backward = translate(back_method, back_rtol, back_atol, selected, func, y0, t)
    return _solve(
        func,
        y0,
        t,
        (method, rtol, atol, options),
        event_fn,
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
        reverse_time: Whether to solve back in time.
        odeint_interface: `odeint` or `odeint_adjoint`.
        **settings: Its further arguments.
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
        rtol: Relative tolerance, 1e-7 by default.
        atol: Absolute tolerance, 1e-9 by default.
        method: A registry name or a solver; 'dopri5' by default.
        options: Further settings by name.

    Example:
        >>> solution = undamped.ode.odeint_dense(lambda t, y: -y, torch.ones(3), 0.0, 1.0)
        >>> solution(0.3)
    """
    t = torch.stack([torch.as_tensor(time, dtype=torch.float64).reshape(()) for time in (t0, t1)])
    how = translate(method, rtol, atol, options, func, y0, t)
    dense = solve(func, y0, t, gradient="backprop", dense=True, **vars(how)).dense
    assert dense is not None
    return dense


@uncompiled
def _solve(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    how: tuple[Any, Tolerance, Tolerance, dict[str, Any] | None],
    event_fn: Callable[[Any, Any], Tensor] | None,
    on_failure: Literal["raise", "partial"] = "raise",
    **arguments: Any,
) -> Any:
    """Return the values of a solve, or time and state of its event.

    Args:
        func: The field.
        y0: The start.
        t: Output times.
        how: Method, relative and absolute tolerance, and options, as torchdiffeq names them.
        event_fn: The event, or None.
        on_failure: Whether to raise an error, or to return the values that were reached.
        **arguments: Further arguments of `undamped.ode.solve`.
    """
    if isinstance(t, Tensor) and t.shape == (1,) and event_fn is None:
        return y0[None] if isinstance(y0, Tensor) else tuple(y[None] for y in y0)
    method, rtol, atol, options = how
    convert(Literal["raise", "partial"], on_failure, "on_failure")
    partial = on_failure == "partial"
    if partial and (event_fn is not None or method == "scipy_solver"):
        raise OptionError(
            "on_failure='partial' goes neither with event_fn nor with scipy_solver. Use "
            "undamped.ode.solve, whose solution says how far it came."
        )
    if method == "scipy_solver":
        return scipy_values(func, y0, t, rtol=rtol, atol=atol, options=options)
    translated, event = translate(method, rtol, atol, options, func, y0, t), None
    if event_fn is not None:
        t, event = _towards(t), _any_of(event_fn, t, y0)
    arguments["on_failure"] = "return" if partial else "raise"
    solution = solve(func, y0, t, event=event, **vars(translated), **arguments)
    if not solution.success and partial:
        warnings.warn(solution.message, PartialSolutionWarning, stacklevel=4)
    if event_fn is None:
        return solution.values
    if isinstance(y0, Tensor):
        return solution.event_time, torch.stack((solution.values[0], solution.event_state))
    pairs = zip(solution.values, solution.event_state, strict=True)
    return solution.event_time, tuple(torch.stack((v[0], state)) for v, state in pairs)


def _towards(t: Tensor) -> Tensor:
    """Return the start, and the end of time in the direction of the second of two times."""
    if not isinstance(t, Tensor) or t.dim() != 1 or len(t) != 2:
        got = f"shape {tuple(t.shape)}" if isinstance(t, Tensor) else f"a {type(t).__name__}"
        raise OptionError(
            "With event_fn t must be a tensor of two times, the start and one that shows the "
            f"direction, got {got}."
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


def translate(
    method: str | Solver | None,
    rtol: Tolerance,
    atol: Tolerance,
    options: dict[str, Any] | None,
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
) -> MethodOptions:
    """Return a method and its options under the names of this library.

    Args:
        method: A name, a solver, or None for 'dopri5'.
        rtol: Relative tolerance; ignored with fixed steps, as is the other.
        atol: Absolute tolerance.
        options: Options as torchdiffeq names them.
        func: The field, for a function that makes a grid.
        y0: The start, likewise.
        t: The output times, likewise.
    """
    solver = choose_solver("dopri5" if method is None else method)
    settings: dict[str, Any] = {}
    control: dict[str, float] = {}
    options = {} if options is None else options
    has_fixed_steps(solver, options)
    for name, value in options.items():
        if name in OF_METHODS and hasattr(solver, OF_METHODS[name]):
            solver = type(solver)(**{OF_METHODS[name]: int(value)})
        elif name in CONTROL:
            control[CONTROL[name]] = float(value)
        elif value is None or name in WITHOUT_EFFECT or (name, value) == ("max_step", math.inf):
            continue
        elif name == "grid_constructor":
            settings["grid"] = value(func, y0, t)
        else:
            settings[RENAMED.get(name, name)] = value
    if control:
        settings["control"] = replace(settings.get("control", StepControl()), **control)
    fixed = has_fixed_steps(solver, settings)
    # Options for the other kind of steps are ignored, as in torchdiffeq.
    for name in ADAPTIVE_ONLY if fixed else FIXED_ONLY:
        settings.pop(name, None)
    return MethodOptions(solver, None if fixed else rtol, None if fixed else atol, settings)
