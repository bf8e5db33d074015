"""ODE-RNN (Rubanova, Chen and Duvenaud, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract.clock import LONGEST_GAP
from undamped._base.options import PositiveFloat, PositiveInt, Units
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.irregular.cell_network import CellNetwork
from undamped.models.irregular.gap_flows import STABLE_STEP, SolvedFlow
from undamped.models.irregular.named_parts import FieldName, field_named
from undamped.ode.fields.gru_field import GRUField


@models.register("ode-rnn")
class ODERNN(CellNetwork):
    """ODE-RNN: the hidden state follows an ODE between samples, and jumps at each of them.

    Equation:
        h⁻(t_i) = h(t_{i−1}) + ∫ f(h) dt over the gap,  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        h hidden state, f field, x_i the sample at time t_i; time is counted in usual gaps.

    Promise:
        The flow between two samples is a homeomorphism: it can be solved back.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        cell: The network whose cell makes the jump: gru, lstm, unicornn, or any other whose state
            has a fixed size.
        cell_options: Options of that cell, by name.
        field: What the state follows: a perceptron, "rotating" (rotations and a perceptron), "gru"
            (the field of a GRU, which keeps −1 < h < 1), "heavy-ball" (positions and momenta),
            "bottleneck", "concat-squash"; from Python also a module that is called with (t, h).
        field_size: Width of the field's hidden layers.
        field_layers: Their number.
        method: Solver of the field.
        steps: Steps per gap; gaps of more than 100,000 usual ones are refused.
        tolerance: Instead of steps: how exact every sequence's flow has to be.
        missing: Whether features may be missing; the task decides.
        gap: The usual time between two samples; the task says it.

    Example:
        >>> net = undamped.models.ODERNN(3, 16, cell="lstm")
        >>> times = torch.rand(20, 4, dtype=torch.float64).cumsum(0)
        >>> output, state = net(torch.randn(20, 4, 3), times)
        >>> output, state = net.step(torch.randn(4, 3), state, dt=0.7)

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019.
    """

    promises = (Promise(Kind.INVERTIBLE_FLOW, "between samples the flow can be solved back"),)
    usual_choice = True

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        cell: str = "gru",
        cell_options: Mapping[str, Any] | None = None,
        field: FieldName | nn.Module = "perceptron",
        field_size: Units = 64,
        field_layers: PositiveInt = 1,
        method: str = "rk4",
        steps: PositiveInt = 1,
        tolerance: PositiveFloat | None = None,
        missing: bool = False,
        gap: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            cell=cell,
            cell_options=cell_options or {},
            missing=missing,
            gap=gap,
        )
        if isinstance(field, str):
            field = field_named(field, self.state_sizes[0], field_size, field_layers)
        self.gap_flow: SolvedFlow = SolvedFlow(
            field,
            method=method,
            steps=steps,
            tolerance=tolerance,
            longest_step=STABLE_STEP if isinstance(field, GRUField) else None,
        )
        self.longest_gap = LONGEST_GAP if tolerance is None else None

    # What is promised is promised of the ODE, solved far more finely than the network asks for.

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, None]:
        """Return random states, and nothing beside them."""
        like = next(self.parameters())
        return torch.randn(count, self.state_sizes[0], generator=generator).to(like), None

    def carry(self, state: Tensor, given: object = None) -> Tensor:
        """Return the state after a usual gap."""
        return self._finely(state, 1.0)

    def carry_back(self, state: Tensor, given: object = None) -> Tensor:
        """Return the state a usual gap before."""
        return self._finely(state, -1.0)

    def _finely(self, state: Tensor, gap: float) -> Tensor:
        assert isinstance(self.gap_flow, SolvedFlow)
        fine = SolvedFlow(self.gap_flow.field, method="dopri5", tolerance=1e-8)
        return fine(state, state.new_full((len(state),), gap))
