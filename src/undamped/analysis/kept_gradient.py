"""What depth does to gradients: the norm of a = ∂L/∂h(t), and the parameters' share y = a ∂f/∂θ.

dL/dθ is the integral of y over depth, so what y does decides what training sees: shares that grow
or fade let one end of depth learn alone, shares that turn cancel each other.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, positive
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
from undamped.ode.flows.waypoints import Waypoints

Array = NDArray[np.float64]


@instruments.register("kept_gradient")
@dataclass(frozen=True)
class KeptGradient(Result):
    """Gradients over depth, relative to what they are at its end.

    `norms[k]` is the median over the batch of ‖a(t)‖/‖a(T)‖ at `times[k]`, `low` and `high` the
    10 % and 90 % quantiles; `shares` is ‖y(t)‖ relative to its largest and `cosines` the cosine
    of y(t) and y(T), y being summed over the batch. `spread` is the median over the batch of
    q95/q05 of ‖a‖ over depth, 1 where it never changes, `share_spread` the same of ‖y‖, and
    `coherence` ‖∫ y dt‖/∫ ‖y‖ dt, from 0 where shares cancel to 1 where they all agree.
    """

    times: Array
    norms: Array
    low: Array
    high: Array
    shares: Array
    cosines: Array
    spread: float
    share_spread: float
    coherence: float
    name: str = ""

    question = "Does the gradient keep its size and its direction on the way through depth?"
    place = 32
    columns = ("over depth", "value", "kept exactly")

    @classmethod
    def measure(cls, probe: Probe) -> KeptGradient:
        """Follow the gradient of the loss, or of a random projection, through the ODE."""
        if not _odes(probe.network):
            raise InapplicableError("it has no ODE in depth with parameters of its own")
        options = {"loss": probe.loss, "seed": probe.seed, "name": probe.name}
        return kept_gradient(probe.model, probe.inputs, **options)

    @property
    def sentence(self) -> str:
        """How much norms change, and how much of the shares adds up."""
        return (
            f"‖∂L/∂h(t)‖ varies by a factor of {self.spread:.3g} over depth (95 % to 5 % "
            f"quantile), the parameters' share by {self.share_spread:.3g}; {self.coherence:.0%} "
            "of the shares add up."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The three numbers."""
        return [
            ("q95/q05 of ‖a‖, median over the batch", f"{self.spread:.4g}", "1"),
            ("q95/q05 of ‖y‖", f"{self.share_spread:.4g}", "1"),
            ("coherence ‖∫ y‖/∫ ‖y‖", f"{self.coherence:.3f}", "1"),
        ]

    @property
    def layout(self) -> Layout:
        """Norms over depth, in decades."""
        ends = [float(self.times[0]), float(self.times[-1])]
        return Layout(
            "Gradients over depth",
            "depth t",
            "‖a(t)‖/‖a(T)‖",
            "A flat line keeps the gradient; where it rises to the left the beginning learns most, "
            "where it falls the end does.",
            log_y=True,
            background=(reference(ends, [1.0, 1.0], "kept"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The median of ‖a‖; alone, its quantiles and the parameters' share too."""
        drawn = [style.line(self.times, positive(self.norms), "‖a(t)‖/‖a(T)‖, median")]
        if style.alone:
            drawn.append(
                style.band(self.times, positive(self.low), positive(self.high), "10 % to 90 %")
            )
            drawn.append(style.line(self.times, positive(self.shares), "‖y(t)‖/largest", 1))
            faint = {"dash": "dot"}
            turned = positive(self.cosines)
            drawn.append(style.line(self.times, turned, "cos(y(t), y(T))", 2, line=faint))
        return drawn


def kept_gradient(
    module: nn.Module,
    inputs: Tensor,
    *,
    points: int = 100,
    loss: Loss | None = None,
    seed: int = 0,
    name: str | None = None,
) -> KeptGradient:
    """Measure gradients at equally spaced depths of a model's ODE.

    Args:
        module: A model of continuous depth.
        inputs: What it takes, (batch, features).
        points: Into how many pieces depth is cut.
        loss: A function of the answer that returns one number; if none, the answer is projected
            on a fixed random direction.
        seed: Seed of the random direction.
        name: What to call the module.

    Example:
        >>> found = kept_gradient(undamped.models.NODE(2, 2, depth=10.0), torch.randn(64, 2))
        >>> found.spread, found.coherence
    """
    odes = _odes(module)
    if not odes:
        raise OptionError(
            explain(
                type(module).__name__,
                expected="an ODE of ours with parameters",
                got="none",
                remedy="Use a model of continuous depth, such as undamped.models.NODE.",
            )
        )
    met = Waypoints(max(1, points // len(odes)))
    with evaluating(module), torch.enable_grad():
        parameters = [p.requires_grad_() for ode in odes for p in ode.parameters()]
        with ExitStack() as stack:
            for ode in odes:
                stack.enter_context(ode.passing_through(met))
            answer = module(inputs.detach().clone().requires_grad_())
        # Where one ODE hands over to the next, the state belongs to the one that moves it on.
        kept = [w for w, after in zip(met, [*met[1:], None], strict=True) if not _same(w, after)]
        pulls = adjoints(projection(loss, seed)(answer), kept, create_graph=False)
        y = parameter_gradients(kept, pulls, parameters, create_graph=False).double()
    norms = sizes(pulls).detach().double()  # (waypoints, batch)
    there = (norms > 0).all(0)
    relative = (norms[:, there] / norms[-1, there]).cpu().numpy()
    if not relative.size:
        relative = np.ones((len(kept), 1))
    low, median, high = np.quantile(relative, [0.1, 0.5, 0.9], axis=1)
    lengths = torch.linalg.vector_norm(y, dim=1)
    span = spans(kept).detach().double().mean(1, keepdim=True)
    cosines = torch.nn.functional.cosine_similarity(y, y[-1:])
    return KeptGradient(
        times=np.concatenate(([0.0], span.squeeze(1).cumsum(0).cpu().numpy())),
        norms=median,
        low=low,
        high=high,
        shares=(lengths / lengths.max().clamp_min(1e-300)).cpu().numpy(),
        cosines=cosines.cpu().numpy(),
        spread=float(np.median([quantile_ratio(column) for column in relative.T])),
        share_spread=quantile_ratio(lengths.cpu().numpy()),
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
    found = [part for part in module.modules() if isinstance(part, NeuralODE)]
    return [ode for ode in found if list(ode.parameters())]


def _same(waypoint: Any, after: Any) -> bool:
    """Whether a state is handed on at once: the end of one ODE, and the beginning of the next."""
    return (
        after is not None
        and isinstance(waypoint.time, float)
        and waypoint.time == after.time
        and waypoint.field is not after.field
    )
