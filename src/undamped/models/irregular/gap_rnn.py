"""Recurrent networks whose hidden state flows between samples: decay, rotation, or an ODE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import LONGEST_GAP
from undamped._base.errors import OptionError
from undamped._base.options import (
    Default,
    PositiveFloat,
    PositiveInt,
    Units,
    check_against,
    options_of,
    select,
    unknown_name,
)
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.irregular.gap_flows import (
    STABLE_STEP,
    Decay,
    FieldName,
    Modes,
    SolvedFlow,
    field_named,
)
from undamped.models.irregular.network import JumpNetwork, Parts, SampleOptions
from undamped.nn.bases.cell import Cell
from undamped.ode.fields.gru_field import GRUField

CONTRACTING = Promise(Kind.CONTRACTING_GAPS, "between samples no norm grows")
SEMIGROUP = Promise(Kind.SEMIGROUP, "two short gaps do what one long gap does")


class GapOptions(SampleOptions, total=False):
    """The cell of a network that flows between samples, and its samples."""

    cell: Annotated[
        str,
        Default(
            "gru",
            "The network whose cell updates the state at a sample: gru, lstm, unicornn, or any "
            "other whose state has a fixed size.",
        ),
    ]
    cell_options: Annotated[
        Mapping[str, Any] | None, Default(None, "Options of that cell, by name.")
    ]


class GapRNN(JumpNetwork):
    """A flow over the gap, then one step of a cell.

    The flow moves the first tensor of the cell's state, which the readout reads: the hidden state
    of an LSTM and not its memory, the positions of oscillators and not their velocities.

    Args:
        more: Further features that the cell reads.
        options: See `GapOptions`.
    """

    gap_flow: Any
    """A `GapFlow` of the first tensor of the state, which subclasses set."""

    def __init__(
        self, input_size: int, hidden_size: int, *, more: int = 0, **options: Unpack[GapOptions]
    ) -> None:
        values: Any = options  # complete, as `checked` passes them
        super().__init__(input_size, hidden_size, **select(options, SampleOptions))
        width = input_size * (2 if self.missing else 1) + more
        self.cell = cell_named(values["cell"], width, hidden_size, values["cell_options"] or {})

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return tuple(size or 0 for size in self.cell.state_sizes)

    @property
    def output_size(self) -> int:
        return self.cell.output_size

    def initial_state(self, batch: int, like: Tensor | None = None) -> Parts:
        like = next(self.parameters()) if like is None else like
        start = self.cell.initial_state(batch, like)
        return (*start, torch.zeros(batch, dtype=torch.float64, device=like.device))

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        return self.cell.project(torch.cat([x, observed.to(x.dtype)], -1) if self.missing else x)

    def constants(self) -> Parts:
        return self.cell.cached_constants()

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        return self.cell.advance(projected, state, constants)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        return (self.gap_flow(state[0], gaps), *state[1:])

    def output(self, state: Parts) -> Tensor:
        return self.cell.output(state)

    @property
    def evaluations(self) -> int:
        """Evaluations of the field in the last flow over a gap."""
        return self.gap_flow.evaluations


@models.register("decay-rnn")
class DecayRNN(GapRNN):
    """RNN with decay: between samples every unit decays exponentially at a learned rate.

    Equation:
        h⁻(t_i) = h(t_{i−1}) ⊙ exp(−r Δt_i),  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        h hidden state, r > 0 rates, Δt_i time since the previous sample, in usual gaps.

    Promise:
        Between samples no norm grows, and two short gaps do exactly what one long gap does.

    Reference:
        M. Mozer, D. Kazakov, R. Lindsey. Discrete event, continuous time RNNs. 2017.
    """

    promises = (CONTRACTING, SEMIGROUP)

    @checked
    def __init__(
        self, input_size: PositiveInt, hidden_size: Units, **options: Unpack[GapOptions]
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.gap_flow = Decay(self.state_sizes[0])


@models.register("modes-rnn")
class ModesRNN(GapRNN):
    """RNN with modes: between samples pairs of units rotate at learned frequencies.

    Equation:
        z_k⁻(t_i) = z_k(t_{i−1}) exp((−g_k + i ω_k) Δt_i),  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        z_k complex modes, the pairs of units (h_k, h_{k+n/2}); ω_k frequencies, g_k ≥ 0 damping,
        0 unless `damped`; Δt_i time since the previous sample, in usual gaps.

    Promise:
        Undamped modes preserve the norm of the state and of its gradient over any gap, and two
        short gaps do exactly what one long gap does.

    Args:
        hidden_size: Number of hidden units; even.
        damped: Whether modes also decay, at learned rates.

    Reference:
        A. Orvieto and others. Resurrecting recurrent neural networks for long sequences. ICML,
        2023, has modes of this kind at every step; modes between samples are ours.
    """

    promises = (CONTRACTING, SEMIGROUP)

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        damped: bool = False,
        **options: Unpack[GapOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.gap_flow = Modes(self.state_sizes[0], damped=damped)


@models.register("ode-rnn")
class ODERNN(GapRNN):
    """ODE-RNN (Rubanova, Chen, Duvenaud): an ODE between samples, and a jump at each of them.

    Equation:
        h⁻(t_i) = h(t_{i−1}) + ∫ f(h) dt over the gap,  h(t_i) = cell(x_i, h⁻(t_i))

    Symbols:
        h hidden state, f field, x_i the sample at time t_i; time is counted in usual gaps.

    Promise:
        The flow between two samples is a homeomorphism: it can be solved back.

    Args:
        field: The field of the state: a perceptron, "rotating" (rotations and a perceptron), "gru"
            (the field of a GRU, which keeps −1 < h < 1), "heavy-ball" (positions and momenta),
            "bottleneck", "concat-squash"; from Python also a module that is called with (t, h).
        field_size: Width of the field's hidden layers.
        field_layers: Number of the field's hidden layers.
        method: Solver of the field.
        steps: Steps per gap; gaps of more than 100,000 usual ones are refused.
        tolerance: Tolerance of the solver for every sequence, instead of a number of steps.

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
        field: FieldName | nn.Module = "perceptron",
        field_size: Units = 64,
        field_layers: PositiveInt = 1,
        method: str = "rk4",
        steps: PositiveInt = 1,
        tolerance: PositiveFloat | None = None,
        **options: Unpack[GapOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        if isinstance(field, str):
            field = field_named(field, self.state_sizes[0], field_size, field_layers)
        self.gap_flow = SolvedFlow(
            field,
            method=method,
            steps=steps,
            tolerance=tolerance,
            longest_step=STABLE_STEP if isinstance(field, GRUField) else None,
        )
        self.longest_gap = LONGEST_GAP if tolerance is None else None

    # Promises are measured on the ODE, solved with a small tolerance.

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, None]:
        """Return random states, and no context."""
        like = next(self.parameters())
        return torch.randn(count, self.state_sizes[0], generator=generator).to(like), None

    def carry(self, state: Tensor, context: object = None) -> Tensor:
        """Return the state after a usual gap."""
        return self.gap_flow.solve_finely(state, 1.0)

    def carry_back(self, state: Tensor, context: object = None) -> Tensor:
        """Return the state a usual gap before."""
        return self.gap_flow.solve_finely(state, -1.0)


def cell_named(name: str, input_size: int, hidden_size: int, options: Mapping[str, Any]) -> Cell:
    """Build the cell of the recurrent network called `name`, with options of the cell."""
    cell_class = getattr(models[name], "cell_class", None) if name in models else None
    if cell_class is None:
        recurrent = [entry for entry in models if hasattr(models[entry], "cell_class")]
        raise unknown_name("cell", name, recurrent)
    checked = check_against(name, options_of(cell_class), options)
    cell = cell_class(input_size, hidden_size, **cell_class.layer_options(checked, 1, 1))
    if None in cell.state_sizes:
        raise OptionError(
            f"cell='{name}' stores past states, and a state of fixed size is needed. Choose gru, "
            "lstm or another without a memory."
        )
    return cell
