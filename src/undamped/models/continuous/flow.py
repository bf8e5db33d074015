"""FFJORD: a continuous normalising flow with the field of its authors."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from undamped._base.registry import models
from undamped.ode.fields.perceptron import BottleneckField, ConcatSquashField
from undamped.ode.flows.continuous_flow import ContinuousFlow, FlowResult, NoiseKind, TraceKind
from undamped.ode.flows.solving import TOLERANCE, SolveOptions, solver_arguments


class DensitySolveOptions(SolveOptions, total=False):
    """How the field of a flow is solved: with a tolerance fine enough for densities."""

    tolerance: Annotated[PositiveFloat, Default(1e-5, TOLERANCE)]


@models.register("ffjord")
class FFJORD(ContinuousFlow):
    """A free-form continuous normalising flow.

    Equation:
        ż = f(t, z),  d log p(z(t))/dt = −tr ∂f/∂z

    Symbols:
        z state, from a normal distribution at 0 to the data at T; f layers gated by time, or a
        perceptron through a bottleneck.

    Promise:
        As for `ContinuousFlow`: invertible, since samples and densities come from the same field,
        solved either way; the log-density is exact and integrates to one.

    Args:
        input_size: Features of the data.
        hidden_size: Width of the field.
        hidden_layers: Its hidden layers, without a bottleneck.
        context_size: Features of a condition; 0 for none.
        bottleneck_size: Features of a bottleneck in the field; 0 for none.
        detail: Factor on the first layer's weights at the start, without a bottleneck; 3 to 6 for
            densities with detail, such as rings inside rings.
        trace: How the trace is computed in training.
        noise: Distribution of the noise of its estimate.
        end: End T of the flow.
        train_end: Whether T is learned.
        kinetic_weight: Factor on the mean of ∫ ‖f‖² dt, which training adds to its loss.
        jacobian_weight: Factor on the mean of ∫ ‖∂f/∂z‖² dt, likewise.
        solve: See `SolveOptions`.

    Example:
        >>> flow = undamped.models.FFJORD(2)
        >>> loss = -flow.log_prob(torch.randn(64, 2)).mean()

    Reference:
        W. Grathwohl and others. FFJORD: free-form continuous dynamics for scalable reversible
        generative models. ICLR, 2019. Regularisers: C. Finlay and others. How to train your
        neural ODE. ICML, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 2,
        context_size: NonNegativeInt = 0,
        bottleneck_size: NonNegativeInt = 0,
        detail: PositiveFloat = 1.0,
        trace: TraceKind = "hutchinson",
        noise: NoiseKind = "gaussian",
        end: PositiveFloat = 0.5,
        train_end: bool = False,
        kinetic_weight: NonNegativeFloat = 0.0,
        jacobian_weight: NonNegativeFloat = 0.0,
        **solve: Unpack[DensitySolveOptions],
    ) -> None:
        if bottleneck_size and context_size:
            raise OptionError(
                f"bottleneck_size must be 0 for a conditional flow, got {bottleneck_size}."
            )
        for name, value, default in (("hidden_layers", hidden_layers, 2), ("detail", detail, 1.0)):
            if bottleneck_size and value != default:
                raise OptionError(
                    f"{name}={value} has no effect with a bottleneck. Leave out one of the two."
                )
        if bottleneck_size:
            field = BottleneckField(input_size, bottleneck_size, hidden_size)
        else:
            field = ConcatSquashField(
                input_size,
                hidden_size,
                hidden_layers=hidden_layers,
                context_size=context_size,
                detail=detail,
            )
        super().__init__(
            field,
            input_size,
            trace=trace,
            noise=noise,
            end=end,
            train_end=train_end,
            **solver_arguments(solve, DensitySolveOptions),
        )
        self.kinetic_weight, self.jacobian_weight = kinetic_weight, jacobian_weight
        self._last: FlowResult | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_last": None}

    def forward(
        self, x: Tensor, context: Tensor | None = None, generator: torch.Generator | None = None
    ) -> FlowResult:
        """Return the result of `ContinuousFlow.forward`, and store it for `penalty`."""
        result = super().forward(x, context, generator)
        penalised = self.kinetic_weight or self.jacobian_weight
        self._last = result if penalised and torch.is_grad_enabled() else None
        return result

    def penalty(self) -> Tensor:
        """Return the weighted costs of the last pass, which training adds to its loss."""
        if self._last is None:
            return torch.zeros_like(self.root_end)
        kinetic, jacobian = self._last.kinetic.mean(), self._last.jacobian.mean()
        return self.kinetic_weight * kinetic + self.jacobian_weight * jacobian
