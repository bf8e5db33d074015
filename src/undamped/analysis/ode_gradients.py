"""The four ways to a gradient, compared on one model: error, time and memory.

The reference is back-propagation in float64 with a tolerance a thousand times finer.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undamped.solvers import McCallumFoster, Solver, solve
from undamped.solvers.choices import Gradient, choose_solver

WAYS: tuple[Gradient, ...] = ("checkpoint", "backprop", "adjoint", "reversible")


@dataclass(frozen=True)
class GradientWay:
    """One way to the gradient.

    Args:
        name: Of the way.
        method: Solver used.
        error: Relative error against the reference.
        discretisation_error: Relative error of the solution itself.
        seconds: Forward and backward, the best of the repetitions.
        saved_bytes: Bytes that the forward pass keeps for the backward pass.
        evaluations: Field evaluations forward.
        evaluations_backward: And backward.
    """

    name: str
    method: str
    error: float
    discretisation_error: float
    seconds: float
    saved_bytes: int
    evaluations: int
    evaluations_backward: int


@dataclass(frozen=True)
class GradientComparison:
    """The ways side by side."""

    ways: tuple[GradientWay, ...]

    def __getitem__(self, name: str) -> GradientWay:
        return next(way for way in self.ways if way.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {way.name: vars(way) | {} for way in self.ways}

    def plot(self) -> Any:
        """Draw error, time and memory of every way."""
        from plotly.subplots import make_subplots

        names = [way.name for way in self.ways]
        figure = make_subplots(
            rows=1, cols=3, subplot_titles=("error of the gradient", "seconds", "kept, MB")
        )
        columns = (
            [max(way.error, 1e-17) for way in self.ways],
            [way.seconds for way in self.ways],
            [way.saved_bytes / 1e6 for way in self.ways],
        )
        for place, values in enumerate(columns, start=1):
            figure.add_bar(x=names, y=values, row=1, col=place, showlegend=False)
            figure.update_yaxes(type="log", row=1, col=place)
        figure.update_layout(
            title="Four ways to the same gradient: what each costs and how far off it is"
        )
        return figure


def compare_gradients(
    field: nn.Module,
    state: Tensor,
    times: list[float],
    *,
    loss: Callable[[Tensor], Tensor] | None = None,
    method: str | Solver = "dopri5",
    rtol: float = 1e-5,
    atol: float = 1e-5,
    step_size: float = 0.02,
    repetitions: int = 3,
) -> GradientComparison:
    """Compare checkpoint, backprop, adjoint and reversible gradients on a field.

    A method that cannot be reversed is wrapped (McCallum and Foster) for the reversible way,
    with fixed steps; `method` of its row says so.

    Args:
        field: The field.
        state: Where to start, (batch, features).
        times: Output times.
        loss: From the final state to a number; the mean square by default.
        method: Solver.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        step_size: Fixed step of methods without step control, and of the wrapped one.
        repetitions: How often each is timed.
    """
    measure = loss or (lambda final: final.pow(2).mean())
    exact_field = copy.deepcopy(field).double()
    exact, wanted, _, _ = _gradient(
        exact_field, state.double(), times, measure, "dopri8", "backprop", rtol * 1e-3, atol * 1e-3
    )
    ways = []
    for way in WAYS:
        solver = choose_solver(method)
        if way == "reversible" and not solver.reversible:
            solver = McCallumFoster("rk4")
        fixed = not solver.adaptive
        tolerance = (None, None) if fixed else (rtol, atol)
        best, found, solution, saved = math.inf, None, None, 0
        final = state
        for _ in range(max(1, repetitions)):
            began = time.perf_counter()
            final, found, solution, saved = _gradient(
                field, state, times, measure, solver, way, *tolerance, step_size if fixed else None
            )
            best = min(best, time.perf_counter() - began)
        assert found is not None and solution is not None
        ways.append(
            GradientWay(
                name=way,
                method=solver.name,
                error=_relative(found, wanted),
                discretisation_error=_relative([final], [exact]),
                seconds=best,
                saved_bytes=saved,
                evaluations=solution.evaluations,
                evaluations_backward=solution.evaluations_backward,
            )
        )
    return GradientComparison(tuple(ways))


def _relative(found: list[Tensor], wanted: list[Tensor]) -> float:
    apart = sum(float((a.double() - b).pow(2).sum()) for a, b in zip(found, wanted, strict=True))
    return math.sqrt(apart / max(sum(float(b.pow(2).sum()) for b in wanted), 1e-300))


def _gradient(
    field: nn.Module,
    state: Tensor,
    times: list[float],
    measure: Callable[[Tensor], Tensor],
    solver: str | Solver,
    way: Gradient,
    rtol: float | None,
    atol: float | None,
    step_size: float | None = None,
) -> tuple[Tensor, list[Tensor], Any, int]:
    """Return the final state, the gradients, the solution and the bytes kept in between."""
    parameters = [parameter for parameter in field.parameters() if parameter.requires_grad]
    leaf = state.detach().clone().requires_grad_()
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    options = {"step_size": step_size} if step_size is not None else None
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        solution = solve(
            field, leaf, times, method=solver, rtol=rtol, atol=atol, gradient=way, options=options
        )
        value = measure(solution.final)
    held = sum(kept.values()) + solution.statistics.kept_bytes
    found = torch.autograd.grad(value, [leaf, *parameters], allow_unused=True)
    filled = [
        torch.zeros_like(x) if g is None else g
        for g, x in zip(found, [leaf, *parameters], strict=True)
    ]
    return solution.final.detach(), [g.detach() for g in filled], solution, held
