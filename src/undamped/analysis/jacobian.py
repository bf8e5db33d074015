"""Jacobians of a step: spectra, singular values, products, Lyapunov exponents, condition.

A step is a function of a flat state (batch, n) that treats all rows independently. Its Jacobian is
computed from n copies of the state, one row from each. Products of many Jacobians over- and
underflow, so they are stored as an orthogonal matrix and a triangular one whose logarithms are
summed (repeated QR).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import circle
from undamped.analysis.core.gradients import batch_axis
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import State, Unrolled, evaluating, network_inside, unroll
from undamped.nn import Recurrent

Array = NDArray[Any]
Step = Callable[[Tensor], Tensor]

LARGEST_STATE = 1024
"""Jacobians of larger states are too large for a report."""


@instruments.register("spectrum")
@dataclass(frozen=True)
class Spectrum(Result):
    """Eigenvalues and singular values of the Jacobian of one step."""

    question = "Which modes of the state decay, persist or grow in one step?"
    page_order = 60
    figure_layout = Layout(
        "Spectrum of one step",
        "real part",
        "imaginary part",
        "Eigenvalues of ∂h'/∂h: modes decay inside the circle, persist on it, grow outside.",
        equal=True,
        background=(circle(),),
    )

    eigenvalues: NDArray[np.complex128]
    singular_values: Array
    name: str

    @property
    def radius(self) -> float:
        """The largest |eigenvalue|."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def norm(self) -> float:
        """The largest singular value."""
        return float(self.singular_values.max())

    @classmethod
    def measure(cls, probe: Probe) -> Spectrum:
        """Measure the whole state after at most 20 steps of the first sequence."""
        last = min(20, probe.length) - 1
        return spectrum(_probe_jacobians(probe, [last])[0], name=probe.name)

    @property
    def sentence(self) -> str:
        return (
            f"The spectral radius of one step is {self.radius:.4g}, its largest singular value "
            f"{self.norm:.4g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        return [style.points(self.eigenvalues.real, self.eigenvalues.imag, "eigenvalues")]


@instruments.register("jacobian_product")
@dataclass(frozen=True)
class JacobianProduct(Result):
    """Logarithms of the singular values of the product of the first k Jacobians, k = 1, 2, …

    `log_singular_values` is (steps, units), largest first; `log_condition` the logarithm of the
    ratio of the largest to the smallest.
    """

    question = "Which directions of the state survive many steps?"
    page_order = 62
    on_request = True
    figure_layout = Layout(
        "Product of Jacobians",
        "number of steps k",
        "log₁₀ of the singular values",
        "Flat lines preserve their directions; lines that diverge lose some directions.",
    )

    log_singular_values: Array
    log_condition: Array
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> JacobianProduct:
        """Measure at most 100 steps of the first sequence."""
        steps = range(min(100, probe.length))
        return jacobian_product(_probe_jacobians(probe, list(steps)), name=probe.name)

    @property
    def sentence(self) -> str:
        return (
            f"After {len(self.log_condition)} steps the condition number of the product is "
            f"10^{self.log_condition[-1] / np.log(10):.3g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        decades = self.log_singular_values / np.log(10)
        steps = np.arange(1, len(decades) + 1)
        middle = decades.shape[1] // 2
        lines = ((0, "largest"), (middle, "median"), (-1, "smallest"))
        return [
            style.line(steps, decades[:, column], label, color)
            for color, (column, label) in enumerate(lines)
        ]


@dataclass(frozen=True)
class Lyapunov(Result):
    """Lyapunov exponents, largest first, per unit of time; `running` are the running averages."""

    exponents: Array
    running: Array
    time: Array

    figure_layout = Layout("Lyapunov exponents", "time", "exponent [1 / time]")

    @property
    def dimension(self) -> float:
        """The Kaplan-Yorke dimension of the attractor."""
        sums = np.cumsum(self.exponents)
        if sums[0] < 0:
            return 0.0
        last = int(np.flatnonzero(sums >= 0)[-1])
        if last + 1 == len(sums):
            return float(len(sums))
        return last + 1 + float(sums[last] / abs(self.exponents[last + 1]))

    @property
    def sentence(self) -> str:
        return f"The largest exponent is {self.exponents[0]:.4g}; above 0 trajectories diverge."

    def traces(self, style: Style) -> list[Trace]:
        return [
            style.line(self.time, self.running[:, index], f"exponent {index + 1}", index)
            for index in range(min(self.running.shape[1], 6))
        ]


def _probe_jacobians(probe: Probe, steps: list[int]) -> Array:
    """Return Jacobians of steps; raise InapplicableError without a state in time or a large one."""
    probe.require_sequences()
    network = probe.network
    width = getattr(network, "hidden_size", 0) * getattr(network, "num_layers", 1)
    if isinstance(network, Recurrent):
        width *= len(network.cell_class.state_names)
    if width > LARGEST_STATE:
        raise InapplicableError(f"its state has {width} entries, more than {LARGEST_STATE}")
    model, axis = copy.deepcopy(probe.model), probe.batch_first
    end = max(steps) + 1
    inputs = probe.inputs[:, :end] if axis else probe.inputs[:end]
    return step_jacobians(model, inputs, at=steps, batch_first=axis)


def jacobian_of(step: Step, state: Tensor) -> Tensor:
    """Return ∂step/∂state (n, n) at a state (n,).

    Args:
        step: A function from (batch, n) to (batch, n) that treats all rows independently.
        state: The state at which the Jacobian is computed.
    """
    copies = state.detach().expand(len(state), -1).clone().requires_grad_()
    with torch.enable_grad():
        advanced = step(copies)
        (rows,) = torch.autograd.grad(advanced.diagonal().sum(), copies)
    return rows


def step_jacobians(
    module: nn.Module,
    inputs: Tensor,
    *,
    at: list[int] | None = None,
    batch_first: bool | None = None,
) -> Array:
    """Return the Jacobians (steps, n, n) of a network's whole state along one sequence.

    Args:
        module: A network with an accessible state (see `gradient_flow`).
        inputs: (time, batch, features), or (batch, time, features); the first sequence of the
            batch is followed.
        at: The steps; by default all of them.
        batch_first: Whether the batch comes first; see `gradient_flow`.
    """
    first = layout_of(module, inputs, batch_first).batch_first
    network, x = network_inside(module, inputs)
    x = x.unsqueeze(1) if x.dim() == 2 else x.transpose(0, 1)[:, :1] if first else x[:, :1]
    steps = set(range(len(x)) if at is None else at)
    jacobians = {}
    with evaluating(module):
        unrolled = _unrolled(network, x, first)
        states = unrolled.initial(1, x)
        for t in range(max(steps) + 1):
            if t in steps:
                step, flat = flat_step(unrolled, x[t], states)
                jacobians[t] = jacobian_of(step, flat).double().cpu().numpy()
            with torch.no_grad():
                _, states = unrolled.step(x[t], states)
    return np.stack([jacobians[t] for t in sorted(jacobians)])


def _unrolled(network: nn.Module, x: Tensor, batch_first: bool = False) -> Unrolled:
    unrolled = unroll(network, x, batch_first=batch_first)
    if unrolled is None:
        raise OptionError(
            f"{type(network).__name__} is not a unidirectional network with an accessible state. "
            "Use gradient_flow, which also measures gradients with respect to the inputs."
        )
    unrolled.prepare()
    return unrolled


def flat_step(unrolled: Unrolled, x: Tensor, states: list[State]) -> tuple[Step, Tensor]:
    """Return the step at input (1, features) as a function of one flat state, and that state."""
    parts = [part for layer in states for part in layer]
    if any(part.is_complex() for part in parts):
        raise OptionError(
            "The state must be real, got a complex one. Stack its real and imaginary parts."
        )
    axes = [batch_axis(part, 1) for part in parts]
    shapes = [part.movedim(axis, 0).shape[1:] for part, axis in zip(parts, axes, strict=True)]
    sizes = [int(np.prod(shape)) for shape in shapes]

    def flatten(layers: list[State]) -> Tensor:
        flat = [part for layer in layers for part in layer]
        rows = [p.movedim(a, 0).flatten(1) for p, a in zip(flat, axes, strict=True)]
        return torch.cat(rows, dim=1)

    def step(flat: Tensor) -> Tensor:
        tensors = iter(
            columns.reshape(-1, *shape).movedim(0, axis)
            for columns, shape, axis in zip(flat.split(sizes, dim=1), shapes, axes, strict=True)
        )
        layers = [tuple(next(tensors) for _ in layer) for layer in states]
        _, advanced = unrolled.step(x.expand(len(flat), *x.shape[1:]), layers)
        return flatten(advanced)

    return step, flatten(states)[0]


def square_matrix(matrix: ArrayLike) -> Array:
    """Return a square matrix as an array of doubles; raise a ShapeError for other shapes."""
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise ShapeError(f"matrix must be square, got shape {square.shape}.")
    return square


def spectrum(matrix: ArrayLike, *, name: str = "W") -> Spectrum:
    """Return eigenvalues and singular values of a matrix.

    Args:
        matrix: A square matrix: a recurrent matrix, or the Jacobian of a step.
        name: Name in the figure.
    """
    square = square_matrix(matrix)
    return Spectrum(
        np.linalg.eigvals(square).astype(np.complex128),
        np.linalg.svd(square, compute_uv=False),
        name,
    )


def jacobian_product(jacobians: Any, *, name: str = "network") -> JacobianProduct:
    """Return the singular values of J_k … J_2 J_1 for every k, as logarithms.

    Args:
        jacobians: (steps, n, n), the first step first.
        name: Name in the figure.
    """
    steps = np.asarray(jacobians, dtype=np.float64)
    n = steps.shape[-1]
    basis, middle, scale = np.eye(n), np.eye(n), 0.0
    logs = np.empty((len(steps), n))
    for k, jacobian in enumerate(steps):
        # The product is exp(scale) · basis · middle, basis orthogonal and middle of size one.
        basis, triangle = np.linalg.qr(jacobian @ basis)
        middle = triangle @ middle
        size = np.abs(middle).max()
        if size > 0:
            middle, scale = middle / size, scale + np.log(size)
        values = np.linalg.svd(middle, compute_uv=False)
        with np.errstate(divide="ignore"):
            logs[k] = np.log(values) + scale
    return JacobianProduct(logs, logs[:, 0] - logs[:, -1], name)


def lyapunov_exponents(
    step: Step,
    state: Tensor,
    steps: int,
    *,
    count: int | None = None,
    step_time: float = 1.0,
    warmup: int = 0,
) -> Lyapunov:
    """Return the Lyapunov exponents of a map, by repeated QR.

    Args:
        step: One step of the map, from (batch, n) to (batch, n), rows independent.
        state: Initial state (n,).
        steps: Number of steps to average over.
        count: Number of exponents; by default all n.
        step_time: Duration of one step, for exponents per unit of time.
        warmup: Number of steps before the measurement, to reach the attractor.
    """
    point = state.detach().double()
    with torch.no_grad():
        for _ in range(warmup):
            point = step(point.unsqueeze(0))[0]
    tangent = torch.eye(len(point), dtype=point.dtype)[:, : count or len(point)]
    total = np.zeros(tangent.shape[1])
    running = np.empty((steps, tangent.shape[1]))
    for k in range(steps):
        jacobian = jacobian_of(step, point)
        tangent, triangle = torch.linalg.qr(jacobian @ tangent)
        total += triangle.diagonal().abs().log().numpy()
        running[k] = total / ((k + 1) * step_time)
        with torch.no_grad():
            point = step(point.unsqueeze(0))[0]
    order = np.argsort(-running[-1])
    time = step_time * np.arange(1, steps + 1)
    return Lyapunov(running[-1][order], running[:, order], time)
