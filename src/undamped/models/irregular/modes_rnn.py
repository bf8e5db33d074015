"""A recurrent network whose state turns between samples: complex modes that keep their norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt, Units
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.irregular.cell_network import CellNetwork
from undamped.models.irregular.gap_flows import Modes


@models.register("modes-rnn")
class ModesRNN(CellNetwork):
    """RNN with modes: between samples pairs of units turn at frequencies that are learnt.

    Equation:
        z_k⁻(t_i) = z_k(t_{i−1}) exp((−g_k + i ω_k) Δt_i),  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        z_k complex modes, the pairs of units (h_k, h_{k+n/2}); ω_k frequencies, g_k ≥ 0 damping,
        which is 0 unless asked for; Δt_i time since the sample before, in usual gaps.

    Promise:
        Undamped modes keep the norm of the state and of its gradient over any gap, and two short
        gaps do exactly what one long gap does.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units; even.
        cell: The network whose cell makes the jump.
        cell_options: Options of that cell, by name.
        damped: Whether modes also decay, at rates that are learnt.
        missing: Whether features may be missing; the task decides.
        gap: The usual time between two samples; the task says it.

    Example:
        >>> net = undamped.models.ModesRNN(3, 16)
        >>> output, state = net(torch.randn(20, 4, 3), torch.rand(20, 4).cumsum(0))

    Reference:
        A. Orvieto and others. Resurrecting recurrent neural networks for long sequences. ICML,
        2023, has modes of this kind at every step; between samples they are ours.
    """

    promises = (
        Promise(Kind.ISOMETRIC_GAPS, "between samples every norm is kept"),
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
        damped: bool = False,
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
        self.gap_flow = Modes(self.state_sizes[0], damped=damped)
        if damped:
            shrinks = Promise(Kind.CONTRACTING_GAPS, "between samples no norm grows")
            self.promises = (shrinks, self.promises[1])
