"""The four gradient methods of ODEs, compared on one model: error, time and memory.

The reference is back-propagation in float64 with a tolerance a thousand times finer.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, UndampedError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Record, Result, Style, Trace
from undamped.analysis.core.result import plain
from undamped.ode import McCallumFoster, Solver
from undamped.ode.flows.continuous_flow import FlowResult
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.settings import Gradient, Settings, choose_solver

WAYS: tuple[Gradient, ...] = ("checkpoint", "backprop", "adjoint", "reversible")
LONG_PASS = 1.0  # seconds; a longer pass is not repeated


@dataclass(frozen=True)
class GradientWay(Record):
    """Error, time and memory of one gradient method.

    Args:
        name: Name of the method.
        method: Names of the solvers.
        error: Relative error against the reference.
        answer_error: Relative error of the model's output, which the gradient inherits.
        seconds: Time of a forward and backward pass, the best of the repetitions.
        saved_bytes: Bytes that the forward pass saves for the backward pass.
        evaluations: Field evaluations of the forward pass.
        evaluations_backward: Field evaluations of the backward pass.
    """

    name: str
    method: str
    error: float
    answer_error: float
    seconds: float
    saved_bytes: int
    evaluations: int
    evaluations_backward: int


@instruments.register("ode_gradients")
@dataclass(frozen=True)
class GradientComparison(Result):
    """The four gradient methods of ODEs, compared on one model.

    Args:
        ways: The methods that apply, by name.
        refused: The methods that do not apply, with the reason.
        name: Name of the model.
    """

    question = "Which gradient method of the ODE is accurate, fast and needs little memory?"
    page_order = 35
    function = "compare_gradients"
    columns = (
        "method",
        "solver",
        "error of the gradient",
        "error of the output",
        "forward and backward",
        "saved",
        "evaluations",
    )
    figure_layout = Layout(
        "Four gradient methods",
        "seconds, forward and backward",
        "relative error of the gradient",
        "Against back-propagation in float64 with a tolerance a thousand times finer. Lower "
        "is more accurate, further left is faster.",
        log_x=True,
        log_y=True,
    )

    ways: dict[str, GradientWay]
    refused: dict[str, str] = field(default_factory=dict)
    name: str = ""

    def __getitem__(self, name: str) -> GradientWay:
        return self.ways[name]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"ways": plain(self.ways), "refused": dict(self.refused)}

    @classmethod
    def measure(cls, probe: Probe) -> GradientComparison:
        if not has_odes(probe.model):
            raise InapplicableError("it solves no ODE")
        return compare_gradients(probe.model, probe.inputs, name=probe.name)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row for every method; the reason of those that do not apply."""
        measured = [
            (
                way.name,
                way.method,
                f"{way.error:.1e}",
                f"{way.answer_error:.1e}",
                f"{way.seconds:.3g} s",
                f"{way.saved_bytes / 1e6:.2f} MB",
                f"{way.evaluations} + {way.evaluations_backward}",
            )
            for way in self.ways.values()
        ]
        refused = [(way, f"refused: {why}", *[""] * 5) for way, why in self.refused.items()]
        return [*measured, *refused]

    def traces(self, style: Style) -> list[Trace]:
        """A point for every method, with its name and the memory it saves."""
        ways = list(self.ways.values())
        if not ways:
            return []
        return [
            style.points(
                [way.seconds for way in ways],
                [max(way.error, 1e-17) for way in ways],
                "methods",
                mode="markers+text",
                text=[
                    f"{way.name}, saves {way.saved_bytes / 1e6:.2g} MB"
                    for way in self.ways.values()
                ],
                textposition="top center",
                cliponaxis=False,
                marker={"size": 11, "opacity": 1.0},
            )
        ]


def has_odes(model: nn.Module) -> bool:
    """Return whether a model solves an ODE of this library."""
    return bool(_odes(model))


def compare_gradients(
    model: nn.Module,
    inputs: Tensor,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    repetitions: int = 3,
    name: str | None = None,
) -> GradientComparison:
    """Compare checkpoint, backprop, adjoint and reversible gradients on a model.

    Each method is used by all ODEs of a copy of the model in evaluation mode, for the gradients of
    the inputs and of all parameters. For the reversible method, solvers that cannot be reversed are
    wrapped (McCallum and Foster), as `method` of its row shows.

    Args:
        model: A model with a `NeuralODE`, a `ContinuousFlow` or several.
        inputs: Its inputs, (batch, ...).
        loss: A function of the output that returns a scalar; by default the mean square, or the
            negative log-likelihood of a density.
        repetitions: Largest number of repetitions; the best time counts, and a pass of more than a
            second is not repeated.
        name: Name of the model in figures.

    Example:
        >>> result = compare_gradients(undamped.models.NODE(2, 2), torch.randn(64, 2))
        >>> result["adjoint"].error, result["adjoint"].saved_bytes
    """
    if not has_odes(model):
        raise OptionError(
            f"{type(model).__name__} contains no ODE of this library. "
            "Use a model with an undamped.NeuralODE."
        )
    measure = loss or _plain_loss
    exact, gradients, *_ = _gradient(_reference(model), inputs.double(), measure)
    ways, refused = {}, {}
    for way in WAYS:
        try:
            ways[way] = _measured(model, inputs, way, measure, exact, gradients, repetitions)
        except UndampedError as error:
            refused[way] = str(error)
    return GradientComparison(ways, refused, name or type(model).__name__)


def compare_field_gradients(
    module: nn.Module,
    state: Tensor,
    times: Sequence[float],
    *,
    loss: Callable[[Tensor], Tensor] | None = None,
    method: str | Solver = "dopri5",
    tolerance: float = 1e-5,
    step_size: float | None = None,
    repetitions: int = 3,
) -> GradientComparison:
    """Compare the four gradient methods on a field; see `compare_gradients`.

    Args:
        module: The field.
        state: Initial state, (batch, features).
        times: First and last time, or more.
        loss: A function of the final state that returns a scalar; by default the mean square.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Fixed step, instead of the tolerance.
        repetitions: Largest number of repetitions.
    """
    tolerances = None if step_size is not None else tolerance
    model = NeuralODE(
        module, times=times, method=method, rtol=tolerances, atol=tolerances, step_size=step_size
    )
    return compare_gradients(model, state, loss=loss, repetitions=repetitions)


def _plain_loss(answer: Any) -> Tensor:
    if isinstance(answer, FlowResult):
        return -answer.log_prob.mean()
    return answer.pow(2).mean()


def _odes(model: nn.Module) -> list[SolvingModule]:
    return [part for part in model.modules() if isinstance(part, SolvingModule)]


def _reference(model: nn.Module) -> nn.Module:
    exact = copy.deepcopy(model).double().eval()
    for part in _odes(exact):
        part.rtol = _finer(Settings.rtol if part.rtol is None else part.rtol)
        part.atol = _finer(Settings.atol if part.atol is None else part.atol)
        part.method, part.step_size, part.gradient = "dopri8", None, "backprop"
    return exact


def _finer(tolerance: Any) -> float:
    """Return a thousandth of a tolerance, or of the smallest of several."""
    return max(1e-13, 1e-3 * float(torch.as_tensor(tolerance).min()))


def _measured(
    model: nn.Module,
    inputs: Tensor,
    way: Gradient,
    measure: Callable[[Any], Tensor],
    exact_answer: Tensor,
    exact_gradients: list[Tensor],
    repetitions: int,
) -> GradientWay:
    probe = copy.deepcopy(model).eval()
    for part in _odes(probe):
        part.gradient = way
        if way == "reversible":
            part.method = _reversible(choose_solver(part.method))
    best, saved_bytes = math.inf, 0
    answer, gradients = exact_answer, exact_gradients
    for _ in range(max(1, repetitions)):
        began = time.perf_counter()
        answer, gradients, saved_bytes = _gradient(probe, inputs, measure)
        best = min(best, time.perf_counter() - began)
        if best > LONG_PASS:
            break
    parts = [part for part in _odes(probe) if part.solution is not None]
    return GradientWay(
        name=way,
        method=", ".join(dict.fromkeys(choose_solver(part.method).name for part in parts)),
        error=_relative(gradients, exact_gradients),
        answer_error=_relative([answer], [exact_answer]),
        seconds=best,
        saved_bytes=saved_bytes,
        evaluations=sum(part.evaluations for part in parts),
        evaluations_backward=sum(part.evaluations_backward for part in parts),
    )


def _reversible(solver: Solver) -> Solver:
    if solver.reversible:
        return solver
    base = solver.name if isinstance(solver, RungeKutta) else "dopri5"
    return McCallumFoster(base)


def _relative(values: list[Tensor], exact: list[Tensor]) -> float:
    squared_error = sum(
        float((a.double() - b).pow(2).sum()) for a, b in zip(values, exact, strict=True)
    )
    return math.sqrt(squared_error / max(sum(float(b.pow(2).sum()) for b in exact), 1e-300))


def _gradient(
    model: nn.Module, inputs: Tensor, measure: Callable[[Any], Tensor]
) -> tuple[Tensor, list[Tensor], int]:
    """Return the output, the gradients, and the bytes saved in between."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    leaf = inputs.detach().clone().requires_grad_()
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            answer = model(leaf)
            value = measure(answer)
        by_solvers = sum(
            part.solution.statistics.stored_bytes
            for part in _odes(model)
            if part.solution is not None
        )
        gradients = torch.autograd.grad(value, [leaf, *parameters], allow_unused=True)
    filled = [
        torch.zeros_like(x) if g is None else g
        for g, x in zip(gradients, [leaf, *parameters], strict=True)
    ]
    output = answer.log_prob if isinstance(answer, FlowResult) else answer
    return output.detach(), [g.detach() for g in filled], sum(saved.values()) + by_solvers
