"""The four ways to a gradient, compared on one model: error, time and memory.

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

from undamped._base.errors import OptionError, UndampedError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Record, Result, plain
from undamped.analysis.core.style import Style, Trace
from undamped.ode import McCallumFoster, Solver
from undamped.ode.flows.continuous_flow import FlowResult
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.settings import Gradient, Settings, choose_solver

WAYS: tuple[Gradient, ...] = ("checkpoint", "backprop", "adjoint", "reversible")
LONG_ENOUGH = 1.0  # seconds of one pass that are measured well enough by it


@dataclass(frozen=True)
class GradientWay(Record):
    """One way to the gradient.

    Args:
        name: Of the way.
        method: Solvers used, by name.
        error: Relative error against the reference.
        answer_error: Relative error of the answer itself, which the gradient inherits.
        seconds: Forward and backward, the best of the repetitions.
        saved_bytes: Bytes that the forward pass keeps for the backward pass.
        evaluations: Field evaluations forward.
        evaluations_backward: And backward.
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
    """The four ways to the gradient of an ODE, side by side on one model.

    Args:
        ways: Those that went.
        refused: Those that did not, and why.
        name: What the model is called.
    """

    question = "Which of the four ways to the gradient of an ODE is exact, fast and small?"
    place = 35
    function = "compare_gradients"
    columns = (
        "way",
        "solver",
        "error of the gradient",
        "error of the answer",
        "there and back",
        "kept",
        "evaluations",
    )

    ways: tuple[GradientWay, ...]
    refused: dict[str, str] = field(default_factory=dict)
    name: str = ""

    def __getitem__(self, name: str) -> GradientWay:
        return next(way for way in self.ways if way.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "ways": {way.name: plain(way) for way in self.ways},
            "refused": dict(self.refused),
        }

    @classmethod
    def measure(cls, probe: Probe) -> GradientComparison:
        """Compare the ways on the inputs."""
        if not has_odes(probe.model):
            raise InapplicableError("it solves no ODE")
        return compare_gradients(probe.model, probe.inputs, name=probe.name)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row for every way, refused ones with their reason."""
        taken = [
            (
                way.name,
                way.method,
                f"{way.error:.1e}",
                f"{way.answer_error:.1e}",
                f"{way.seconds:.3g} s",
                f"{way.saved_bytes / 1e6:.2f} MB",
                f"{way.evaluations} + {way.evaluations_backward}",
            )
            for way in self.ways
        ]
        refused = [(way, f"refused: {why}", *[""] * 5) for way, why in self.refused.items()]
        return [*taken, *refused]

    @property
    def layout(self) -> Layout:
        """Error against seconds, both in decades."""
        return Layout(
            "Four ways to the gradient",
            "seconds there and back",
            "relative error of the gradient",
            "Against back-propagation in float64 with a tolerance a thousand times finer. Lower "
            "is more exact, further left is faster.",
            log_x=True,
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for every way, named and with the memory it keeps."""
        if not self.ways:
            return []
        return [
            style.points(
                [way.seconds for way in self.ways],
                [max(way.error, 1e-17) for way in self.ways],
                "ways",
                mode="markers+text",
                text=[f"{way.name}, keeps {way.saved_bytes / 1e6:.2g} MB" for way in self.ways],
                textposition="top center",
                cliponaxis=False,
                marker={"size": 11, "opacity": 1.0},
            )
        ]


def has_odes(model: nn.Module) -> bool:
    """Whether a model solves an ODE of ours, so that the four ways can be compared on it."""
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

    Every way is taken by all the ODEs of a copy of the model in evaluation mode, and gives the
    gradients of the inputs and of all parameters. A method that cannot be reversed is wrapped
    (McCallum and Foster) for the reversible way; `method` of its row says so.

    Args:
        model: A model that holds a `NeuralODE`, a `ContinuousFlow` or several.
        inputs: What it takes, (batch, ...).
        loss: From the answer to a number; if none, the mean square, or for a density minus the
            mean of its logarithm.
        repetitions: How often each is timed at most; the best counts, and one that takes longer
            than a second is not timed again.
        name: What to call the model.

    Example:
        >>> found = compare_gradients(undamped.models.NODE(2, 2), torch.randn(64, 2))
        >>> found["adjoint"].error, found["adjoint"].saved_bytes
    """
    if not has_odes(model):
        raise OptionError(
            explain(
                type(model).__name__,
                expected="an ODE of ours inside",
                got="none",
                remedy="Use a model that holds an undamped.NeuralODE.",
            )
        )
    measure = loss or _plain_loss
    exact, wanted, *_ = _gradient(_reference(model), inputs.double(), measure)
    ways, refused = [], {}
    for way in WAYS:
        try:
            ways.append(_measured(model, inputs, way, measure, exact, wanted, repetitions))
        except UndampedError as error:
            refused[way] = str(error)
    return GradientComparison(tuple(ways), refused, name or type(model).__name__)


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
    """Compare the four ways on a field; see `compare_gradients`.

    Args:
        module: The field.
        state: Where to start, (batch, features).
        times: First and last time, or more.
        loss: From the final state to a number; the mean square by default.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Fixed step, instead of the tolerance.
        repetitions: How often each is timed.
    """
    asked = None if step_size is not None else tolerance
    model = NeuralODE(
        module, times=times, method=method, rtol=asked, atol=asked, step_size=step_size
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
    """Return a thousandth of a tolerance; of several, that of the finest."""
    return max(1e-13, 1e-3 * float(torch.as_tensor(tolerance).min()))


def _measured(
    model: nn.Module,
    inputs: Tensor,
    way: Gradient,
    measure: Callable[[Any], Tensor],
    exact: Tensor,
    wanted: list[Tensor],
    repetitions: int,
) -> GradientWay:
    probe = copy.deepcopy(model).eval()
    for part in _odes(probe):
        part.gradient = way
        if way == "reversible":
            part.method = _reversible(choose_solver(part.method))
    best, kept = math.inf, 0
    answer, found = exact, wanted
    for _ in range(max(1, repetitions)):
        began = time.perf_counter()
        answer, found, kept = _gradient(probe, inputs, measure)
        best = min(best, time.perf_counter() - began)
        if best > LONG_ENOUGH:
            break
    parts = [part for part in _odes(probe) if part.solution is not None]
    return GradientWay(
        name=way,
        method=", ".join(dict.fromkeys(choose_solver(part.method).name for part in parts)),
        error=_relative(found, wanted),
        answer_error=_relative([answer], [exact]),
        seconds=best,
        saved_bytes=kept,
        evaluations=sum(part.evaluations for part in parts),
        evaluations_backward=sum(part.evaluations_backward for part in parts),
    )


def _reversible(solver: Solver) -> Solver:
    if solver.reversible:
        return solver
    base = solver.name if isinstance(solver, RungeKutta) else "dopri5"
    return McCallumFoster(base)


def _relative(found: list[Tensor], wanted: list[Tensor]) -> float:
    apart = sum(float((a.double() - b).pow(2).sum()) for a, b in zip(found, wanted, strict=True))
    return math.sqrt(apart / max(sum(float(b.pow(2).sum()) for b in wanted), 1e-300))


def _gradient(
    model: nn.Module, inputs: Tensor, measure: Callable[[Any], Tensor]
) -> tuple[Tensor, list[Tensor], int]:
    """Return the answer, the gradients, and the bytes kept in between."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    leaf = inputs.detach().clone().requires_grad_()
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            answer = model(leaf)
            value = measure(answer)
        by_solvers = sum(
            part.solution.statistics.kept_bytes
            for part in _odes(model)
            if part.solution is not None
        )
        found = torch.autograd.grad(value, [leaf, *parameters], allow_unused=True)
    filled = [
        torch.zeros_like(x) if g is None else g
        for g, x in zip(found, [leaf, *parameters], strict=True)
    ]
    shown = answer.log_prob if isinstance(answer, FlowResult) else answer
    return shown.detach(), [g.detach() for g in filled], sum(kept.values()) + by_solvers
