"""Neural ODE whose field also reads the input, with a linear readout."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import DepthOptions, flow_of
from undamped.ode.fields.data_controlled import Controlled, DepthNetwork
from undamped.ode.fields.perceptron import Activation, PerceptronField
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.settings import choose_solver

_OWN_DEPTHS = "With adaptive depth samples have no common times at which y can be summed."


@models.register("data-controlled-node")
class DataControlledNODE(ContinuousModel):
    """A neural ODE whose field also reads the input, to a depth that may depend on it.

    Equation:
        ż = f(t, [z, x]),  z(0) = x,  ŷ = W z(g(x)) + b;  g = T unless adaptive

    Symbols:
        x input, z state, T depth, g learned depth, which starts near T.

    Promise:
        For every input the flow is a homeomorphism of the state; states of different inputs, whose
        flows differ, may meet.

    Args:
        hidden_size: Width of the field.
        adaptive_depth: Whether every sample is integrated to its own depth g(x).
        activation: Activation of the field.
        solve: See `DepthOptions`.
        gradient: How gradients are computed; with adaptive depth all but `reversible`.

    Example:
        >>> model = undamped.models.DataControlledNODE(2, 2, adaptive_depth=True)

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        adaptive_depth: bool = False,
        activation: Activation = "tanh",
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        field = PerceptronField(
            input_size, hidden_size, input_size=2 * input_size, activation=activation
        )
        self.start = nn.Identity()
        self.flow = flow_of(field, solve)
        excluded = {"parameters": _OWN_DEPTHS, "direction": _OWN_DEPTHS} if adaptive_depth else {}
        self.keep(solve, **excluded)
        if adaptive_depth:
            _check_adaptive(self._ode)
        self.depth = DepthNetwork(input_size, self.end_of_depth) if adaptive_depth else None
        self.head = nn.Linear(input_size, output_size)
        self.input_size = input_size

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the sample's depth, (batch, input)."""
        return self.carry(x, x)

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the sample's depth from one at the start.

        Args:
            state: The state at the start.
            context: The input, which the field reads.
        """
        return self._ode.solve(state, **self._controlled(context)).final

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the start that flows to this one at the sample's depth."""
        return self._ode.inverse(state, **self._controlled(context))

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return random inputs, as states and as inputs of the field."""
        x, _ = super().example(count, generator)
        return x, x

    @property
    def _ode(self) -> NeuralODE:
        assert isinstance(self.flow, NeuralODE)
        return self.flow

    def _controlled(self, x: Tensor | None) -> dict[str, Any]:
        assert x is not None
        times = None if self.depth is None else self.depth.times(x)
        return {"times": times, "field": Controlled(self._ode.field, x)}


def _check_adaptive(flow: NeuralODE) -> None:
    solver = choose_solver(flow.method)
    if flow.gradient == "reversible":
        wrong, got = "gradient", "'reversible'"
    elif flow.step_size is not None:
        wrong, got = "step_size", f"{flow.step_size:g}"
    elif solver.implicit and flow.gradient == "adjoint":
        wrong, got = "gradient", f"'adjoint' with '{solver.name}'"
    elif not (solver.per_sample and solver.adaptive):
        wrong, got = "method", f"'{solver.name}'"
    else:
        return
    raise OptionError(
        "DataControlledNODE.adaptive_depth needs separate steps for every sample, got "
        f"{wrong}={got}. Use 'dopri5', 'tsit5', 'bosh3', 'heun', 'dopri8', or 'radau5' for stiff "
        "fields, gradient='checkpoint' and no step_size, or leave out adaptive_depth."
    )
