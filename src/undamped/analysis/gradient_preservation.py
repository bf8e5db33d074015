"""Gradients over depth: the norm of a = ∂L/∂h(t), and the contributions y = a ∂f/∂θ to dL/dθ.

dL/dθ is the integral of y over depth. Where the norm of y changes over depth, one end dominates the
learning; where its direction changes, contributions cancel.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import positive, reference
from undamped.analysis.core.unrolled import evaluating
from undamped.analysis.gradient_flow import Loss, projection
from undamped.ode.flows.depth_gradients import (
    adjoints,
    coherence,
    parameter_gradients,
    sizes,
    spans,
)
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solving import Waypoints

Array = NDArray[np.float64]


@instruments.register("gradient_preservation")
@dataclass(frozen=True)
class GradientPreservation(Result):
    """Gradients over depth, relative to their values at its end.

    `norms[k]` is the median over the batch of ‖a(t)‖/‖a(T)‖ at `times[k]`, `low` and `high` the
    10 % and 90 % quantiles; `contributions` is ‖y(t)‖ relative to its largest and `cosines` the
    cosine of y(t) and y(T), y being summed over the batch. `spread` is the median over the batch
    of q95/q05 of ‖a‖ over depth, 1 where it never changes, `contribution_spread` the same of ‖y‖,
    and `coherence` ‖∫ y dt‖/∫ ‖y‖ dt, from 0 where contributions cancel to 1 where all have the
    same direction.
    """

    times: Array
    norms: Array
    low: Array
    high: Array
    contributions: Array
    cosines: Array
    spread: float
    contribution_spread: float
    coherence: float
    name: str = ""

    question = "Do norm and direction of the gradient stay constant over depth?"
    page_order = 32
    columns = ("over depth", "value", "if constant")

    @classmethod
    def measure(cls, probe: Probe) -> GradientPreservation:
        """Measure the gradient of the loss, or of a random projection, along the ODE."""
        if not _odes(probe.network):
            raise InapplicableError("it has no ODE in depth with parameters")
        options = {"loss": probe.loss, "seed": probe.seed, "name": probe.name}
        return gradient_preservation(probe.model, probe.inputs, **options)

    @property
    def sentence(self) -> str:
        return (
            f"‖∂L/∂h(t)‖ varies by a factor of {self.spread:.3g} over depth (95 % to 5 % "
            f"quantile), that of the parameters by {self.contribution_spread:.3g}; the "
            f"coherence of the contributions is {self.coherence:.0%}."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            ("q95/q05 of ‖a‖, median over the batch", f"{self.spread:.4g}", "1"),
            ("q95/q05 of ‖y‖", f"{self.contribution_spread:.4g}", "1"),
            ("coherence ‖∫ y‖/∫ ‖y‖", f"{self.coherence:.3f}", "1"),
        ]

    @property
    def layout(self) -> Layout:
        ends = [float(self.times[0]), float(self.times[-1])]
        return Layout(
            "Gradients over depth",
            "depth t",
            "‖a(t)‖/‖a(T)‖",
            "A flat line preserves the gradient; where it rises to the left, the beginning learns "
            "most, where it falls, the end.",
            log_y=True,
            background=(reference(ends, [1.0, 1.0], "preserved"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The median of ‖a‖; for a single model also its quantiles and the contributions y."""
        lines = [style.line(self.times, positive(self.norms), "‖a(t)‖/‖a(T)‖, median")]
        if style.single:
            lines.append(
                style.band(self.times, positive(self.low), positive(self.high), "10 % to 90 %")
            )
            lines.append(style.line(self.times, positive(self.contributions), "‖y(t)‖/largest", 1))
            faint = {"dash": "dot"}
            cosines = positive(self.cosines)
            lines.append(style.line(self.times, cosines, "cos(y(t), y(T))", 2, line=faint))
        return lines


def gradient_preservation(
    module: nn.Module,
    inputs: Tensor,
    *,
    points: int = 100,
    loss: Loss | None = None,
    seed: int = 0,
    name: str | None = None,
) -> GradientPreservation:
    """Measure gradients at equally spaced depths of a model's ODE.

    Args:
        module: A model of continuous depth.
        inputs: Its inputs, (batch, features).
        points: Number of segments of the depth.
        loss: A function of the output that returns a scalar; by default the projection on a fixed
            random direction.
        seed: Seed of the random direction.
        name: Name of the module in figures.

    Example:
        >>> model = undamped.models.NODE(2, 2, depth=10.0)
        >>> result = gradient_preservation(model, torch.randn(64, 2))
        >>> result.spread, result.coherence
    """
    odes = _odes(module)
    if not odes:
        raise OptionError(
            f"{type(module).__name__} has no ODE of this library with parameters. "
            "Use a model of continuous depth, such as undamped.models.NODE."
        )
    waypoints = Waypoints(max(1, points // len(odes)))
    with evaluating(module), torch.enable_grad():
        parameters = [p.requires_grad_() for ode in odes for p in ode.parameters()]
        with ExitStack() as stack:
            for ode in odes:
                stack.enter_context(ode.passing_through(waypoints))
            answer = module(inputs.detach().clone().requires_grad_())
        # The state between two ODEs belongs to the second one.
        following = [*waypoints[1:], None]
        states = [w for w, after in zip(waypoints, following, strict=True) if not _same(w, after)]
        gradients = adjoints(projection(loss, seed)(answer), states, create_graph=False)
        y = parameter_gradients(states, gradients, parameters, create_graph=False).double()
    norms = sizes(gradients).detach().double()  # (waypoints, batch)
    nonzero = (norms > 0).all(0)
    relative = (norms[:, nonzero] / norms[-1, nonzero]).cpu().numpy()
    if not relative.size:
        relative = np.ones((len(states), 1))
    low, median, high = np.quantile(relative, [0.1, 0.5, 0.9], axis=1)
    lengths = torch.linalg.vector_norm(y, dim=1)
    span = spans(states).detach().double().mean(1, keepdim=True)
    cosines = torch.nn.functional.cosine_similarity(y, y[-1:])
    return GradientPreservation(
        times=np.concatenate(([0.0], span.squeeze(1).cumsum(0).cpu().numpy())),
        norms=median,
        low=low,
        high=high,
        contributions=(lengths / lengths.max().clamp_min(1e-300)).cpu().numpy(),
        cosines=cosines.cpu().numpy(),
        spread=float(np.median([quantile_ratio(column) for column in relative.T])),
        contribution_spread=quantile_ratio(lengths.cpu().numpy()),
        coherence=coherence(y, span),
        name=name or type(module).__name__,
    )


def quantile_ratio(values: Any) -> float:
    """Return q95/q05 of positive values: 1 where they are all the same.

    Args:
        values: The values.
    """
    low, high = np.quantile(np.asarray(values, dtype=float), [0.05, 0.95])
    return float(high / low) if low > 0 else float("inf")


def _odes(module: nn.Module) -> list[NeuralODE]:
    odes = [part for part in module.modules() if isinstance(part, NeuralODE)]
    return [ode for ode in odes if list(ode.parameters())]


def _same(waypoint: Any, after: Any) -> bool:
    """Return whether a state is the end of one ODE and the beginning of the next."""
    return (
        after is not None
        and isinstance(waypoint.time, float)
        and waypoint.time == after.time
        and waypoint.field is not after.field
    )
