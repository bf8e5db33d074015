"""A recurrent network that forgets with time: exponential decay between samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt, Units
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.irregular.cell_network import CellNetwork
from undamped.models.irregular.gap_flows import Decay


@models.register("decay-rnn")
class DecayRNN(CellNetwork):
    """RNN with decay: between samples every unit dies away at a rate it learns.

    Equation:
        h⁻(t_i) = h(t_{i−1}) ⊙ exp(−r Δt_i),  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        h hidden state, r > 0 rates, Δt_i time since the sample before, in usual gaps.

    Promise:
        Between samples no norm grows, and two short gaps do exactly what one long gap does.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        cell: The network whose cell makes the jump.
        cell_options: Options of that cell, by name.
        missing: Whether features may be missing; the task decides.
        gap: The usual time between two samples; the task says it.

    Example:
        >>> net = undamped.models.DecayRNN(3, 16)
        >>> output, state = net(torch.randn(20, 4, 3), torch.rand(20, 4).cumsum(0))

    Reference:
        M. Mozer, D. Kazakov, R. Lindsey. Discrete event, continuous time RNNs. 2017.
    """

    promises = (
        Promise(Kind.CONTRACTING_GAPS, "between samples no norm grows"),
        Promise(Kind.SEMIGROUP, "two short gaps do what one long gap does"),
    )

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        cell: str = "gru",
        cell_options: Mapping[str, Any] | None = None,
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
        self.gap_flow = Decay(self.state_sizes[0])
