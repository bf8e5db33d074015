"""Neural ODE whose field keeps seeing the input, with a linear readout."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from undamped.checked import checked
from undamped.errors import OptionError, explain
from undamped.fields.data_controlled import Controlled, DepthNetwork
from undamped.fields.perceptron import Activation, PerceptronField
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.solve_options import SolveOptions, solver_arguments
from undamped.networks.continuous.base import ContinuousModel
from undamped.options import PositiveInt
from undamped.registry import models
from undamped.solvers.settings import choose_solver


@models.register("data-controlled-node")
class DataControlledNODE(ContinuousModel):
    """A neural ODE whose field keeps seeing the input, to a depth that may depend on it.

    Equation:
        ż = f(t, [z, x]),  z(0) = x,  ŷ = W z(g(x)) + b;  g = 1 unless adaptive

    Symbols:
        x input, z state, g learned depth.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        adaptive_depth: Whether every sample is integrated to a depth g(x) of its own.
        activation: Activation of the field.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.
        gradient: How gradients are taken; with adaptive depth all but `reversible`.

    Example:
        >>> model = undamped.DataControlledNODE(2, 2, adaptive_depth=True)

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
        **solve: Unpack[SolveOptions],
    ) -> None:
        super().__init__()
        field = PerceptronField(
            input_size, hidden_size, input_size=2 * input_size, activation=activation
        )
        self.start = nn.Identity()
        self.flow = NeuralODE(field, **solver_arguments(solve))
        if adaptive_depth:
            _check_adaptive(self.flow)
        self.depth = DepthNetwork(input_size) if adaptive_depth else None
        self.head = nn.Linear(input_size, output_size)
        self.input_size = input_size

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the sample's depth, (batch, input)."""
        times = None if self.depth is None else self.depth.times(x)
        assert isinstance(self.flow, NeuralODE)
        return self.flow.solve(x, times, field=Controlled(self.flow.field, x)).final


def _check_adaptive(flow: NeuralODE) -> None:
    solver = choose_solver(flow.method)
    if flow.gradient == "reversible":
        wrong, got = "gradient", "'reversible', which undoes the steps of all samples together"
    elif flow.step_size is not None:
        wrong, got = "step_size", f"{flow.step_size:g} for all samples"
    elif not (solver.per_sample and solver.adaptive):
        wrong, got = "method", f"'{solver.name}'"
    else:
        return
    raise OptionError(
        explain(
            f"DataControlledNODE.{wrong}",
            expected="with adaptive_depth, steps of its own for every sample",
            got=got,
            remedy="Use 'dopri5', 'tsit5', 'bosh3', 'heun' or 'dopri8' with another gradient and "
            "no step_size, or leave out adaptive_depth.",
        )
    )
