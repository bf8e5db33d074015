"""Recurrences without matrices: SRU (Lei et al., 2018), minGRU and minLSTM (Feng et al., 2024)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Operator, operators, steps
from undamped.kernels.dispatch import on_gpu
from undamped.kernels.linear.scan import linear_scan
from undamped.kernels.sru.scan import light_scan
from undamped.nn.bases.cell import Cell, MemoryPlan, ScanResult, State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class SRUCell(CoupledCell):
    """SRU: gates and candidate read the input only, and the recurrence is elementwise.

    Equation:
        f = σ̂(V_f x + v_f ⊙ c + b_f),  r = σ̂(V_r x + v_r ⊙ c + b_r)
        c' = f ⊙ c + (1 − f) ⊙ (V x)
        h' = r ⊙ c' + (1 − r) ⊙ s,  s = α x or V_s x,  α = √(1 + 2 exp(b_r)) at the start

    Symbols:
        c memory, h output, x input, f forget gate, r reset gate, v recurrent weights per unit;
        s is α x if the sizes agree and V_s x otherwise. The constant α compensates for the gates,
        so that a signal is as large after many layers as before; without it the output of layer 8
        is about 0.03 of its input.

    Promise:
        None strict.

    Args:
        highway_bias: Initial value of b_r; with a negative one, more of the input passes at first.
        rescale: Whether s is scaled by α, as in the paper; in the authors' program it is an option,
            true for cells and false for stacks of layers.

    Example:
        >>> net = undamped.nn.SRU(3, 16, num_layers=2)
        >>> output, (h, c) = net(torch.randn(50, 4, 3))

    Reference:
        T. Lei, Y. Zhang, S. I. Wang, H. Dai, Y. Artzi. Simple recurrent units for highly
        parallelizable recurrence. EMNLP, 2018.
    """

    state_names = ("hidden", "memory")
    independent_units = True
    kernel = steps.LightRecurrence()
    passing_scale: Tensor

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        highway_bias: float = 0.0,
        rescale: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.passes_input = input_size == hidden_size
        parts = 3 if self.passes_input else 4
        # The paper's scale: entries uniform with variance 1/d.
        bound = (3 / input_size) ** 0.5
        self.input_weight = nn.Parameter(torch.empty(parts * hidden_size, input_size))
        nn.init.uniform_(self.input_weight, -bound, bound)
        # A gate sums two terms, input and memory: each has variance one half.
        bound = 1.5**0.5
        self.forget_weight = nn.Parameter(torch.empty(hidden_size).uniform_(-bound, bound))
        self.reset_weight = nn.Parameter(torch.empty(hidden_size).uniform_(-bound, bound))
        scale = (1 + 2 * math.exp(highway_bias)) ** 0.5 if rescale else 1.0
        with torch.no_grad():
            self.input_weight[hidden_size : 3 * hidden_size] *= 0.5**0.5
            self.input_weight[3 * hidden_size :] *= scale
        # A buffer, so that files of earlier versions, which lack it, are loaded with a scale of 1.
        self.register_buffer("passing_scale", torch.tensor(scale if self.passes_input else 1.0))
        self.register_load_state_dict_pre_hook(_files_without_scale)
        self.forget_bias = nn.Parameter(torch.zeros(hidden_size))
        self.reset_bias = nn.Parameter(torch.full((hidden_size,), highway_bias))

    def input_tensors(self) -> State:
        """Return the stacked matrices of candidate, forget, reset and skip connection."""
        zeros = torch.zeros_like(self.forget_bias)
        bias = torch.cat([zeros, self.forget_bias, self.reset_bias, zeros])
        if not self.passes_input:
            return self.input_weight, bias
        passing = self.passing_scale * torch.eye(self.input_size).to(bias)
        return torch.cat([self.input_weight, passing]), bias

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step of the elementwise recurrence."""
        memory = state[1]
        candidate, forget, reset, passing = projected.chunk(4, dim=-1)
        f = torch.sigmoid(forget + self.forget_weight * memory)
        r = torch.sigmoid(reset + self.reset_weight * memory)
        memory = f * memory + (1 - f) * candidate
        return r * memory + (1 - r) * passing, memory

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan with the fused kernels: on a GPU the recurrence only, after the product."""
        weights = self.forget_weight, self.reset_weight
        if not on_gpu(x, *state, *weights):
            return super().scan(x, state, lengths)
        outputs, memory = light_scan(self.project(x), *weights, state[1], lengths)
        if lengths is None:
            return outputs, (outputs[-1], memory)
        sequences = torch.arange(len(lengths), device=lengths.device)
        return outputs, (outputs[lengths - 1, sequences], memory)

    def operator(self) -> Operator:
        """Return the operator without a product."""
        return operators.Nothing()

    def constants(self) -> State:
        """Return nothing."""
        return ()

    def elementwise_tensors(self, constants: State) -> State:
        """Return the recurrent weights of both gates."""
        return self.forget_weight, self.reset_weight


def _files_without_scale(
    cell: nn.Module, weights: dict[str, Any], prefix: str, *unused: object
) -> None:
    weights.setdefault(f"{prefix}passing_scale", torch.tensor(1.0))


class InputGatedCell(Cell):
    """h' = a h + (1 − a) g(V u), with a computed from the input.

    Symbols:
        h hidden state, u input; g keeps candidates positive. The recurrence is linear in h, which
        is the output of the layer.

    Promise:
        ‖∂h'/∂h‖ ≤ 1 at every step.

    Reference:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi. Were RNNs all we needed?
        arXiv:2410.01201, 2024.
    """

    independent_units = True
    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),)
    gates: ClassVar[int]

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        bound = input_size**-0.5
        rows = (self.gates + 1) * hidden_size
        self.input_weight = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))

    @abstractmethod
    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the weights of the old state and of the candidate, whose sum is one."""

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and (1 − a) g(V u)."""
        *gates, candidate = F.linear(x, self.input_weight, self.bias).split(self.hidden_size, -1)
        old, new = self.mixture(tuple(gates))
        return old, new * positive(candidate)

    def project(self, x: Tensor) -> Tensor:
        """Return a and (1 − a) g(V u), concatenated."""
        return torch.cat(self.parts(x), -1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Return a h + (1 − a) g(V u)."""
        old, new = projected.chunk(2, dim=-1)
        return (old * state[0] + new,)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Make all steps in one compiled loop."""
        old, new = self.parts(x)
        output, last = linear_scan(new, old, state[0], lengths)
        return output, (last,)

    def step_gradient_bound(self) -> Tensor:
        """Return one: a lies between zero and one."""
        return torch.ones(())


def positive(v: Tensor) -> Tensor:
    """Return v + ½ where v ≥ 0, and σ̂(v) elsewhere."""
    return torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


class MinGRUCell(InputGatedCell):
    """minGRU: a GRU whose gate and candidate read only the input.

    Equation:
        h' = (1 − q) ⊙ h + q ⊙ g(V u + b),  q = σ̂(V_q u + b_q)
        g(v) = v + ½ for v ≥ 0, σ̂(v) otherwise

    Example:
        >>> net = undamped.nn.MinGRU(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    gates = 1
    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=15)

    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return 1 − q and q."""
        return torch.sigmoid(-gates[0]), torch.sigmoid(gates[0])


class MinLSTMCell(InputGatedCell):
    """minLSTM: an LSTM whose gates read only the input and are normalised to a sum of one.

    Equation:
        h' = f/(f + i) ⊙ h + i/(f + i) ⊙ g(V u + b)
        f = σ̂(V_f u + b_f),  i = σ̂(V_i u + b_i),  g as in mingru

    Example:
        >>> net = undamped.nn.MinLSTM(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    gates = 2
    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=20)

    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return f/(f + i) and i/(f + i), from logarithms, so that two closed gates divide too."""
        forget, enter = gates
        balance = F.logsigmoid(forget) - F.logsigmoid(enter)
        return torch.sigmoid(balance), torch.sigmoid(-balance)


class LatchCell(InputGatedCell):
    """Latch: a minGRU whose gates close completely, so that it holds its state for any time.

    Equation:
        q = min(max(½ + a (V_q u + b_q), 0), 1),  a = ¼ (1 with slow_gates)
        h' = (1 − q) ⊙ h + q ⊙ g(V u + b),  y = LayerNorm(h'),  g as in mingru

    Symbols:
        h state, y output, q gate, a its slope; u is the input of the network, in later layers after
        the output of the layer before. A logistic gate is never zero: with q = 10⁻³ a state is gone
        after some thousand steps. This one is zero for inputs below −1/(2a), where h' = h to the
        last bit. Nothing is added to y around a layer, so that later layers see a constant while
        earlier ones hold.

    Promise:
        ‖∂h'/∂h‖ ≤ 1 at every step, and exactly one where the gate is closed.

    Args:
        slow_gates: Whether gates start between closed and half open (b_q between −½ and 0), with a
            slope of one. Some tasks are then learnt in fewer updates, but gates may stay open by a
            little, which is seen in long sequences only.

    Example:
        >>> net = undamped.nn.Latch(3, 16, num_layers=3)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        minGRU with the gate of M. Courbariaux, Y. Bengio, J.-P. David. BinaryConnect. NeurIPS, 2015
        (hard sigmoid); latching in the sense of Y. Bengio, P. Simard, P. Frasconi, 1994.
    """

    gates = 1
    independent_units = False
    # Measured: 14.3 sequences in one layer and 11.1 in three, with all chunks saved.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=15)

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, *, slow_gates: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.slope = 1.0 if slow_gates else 0.25
        if slow_gates:
            with torch.no_grad():
                self.bias[:hidden_size].uniform_(-0.5, 0)
        # The normalisation of a single number would be zero.
        self.norm = nn.LayerNorm(hidden_size) if hidden_size > 1 else nn.Identity()

    @classmethod
    def sources(cls, layer: PositiveInt, options: Mapping[str, Any]) -> tuple[NonNegativeInt, ...]:
        """Return the layer before and the input of the network."""
        return (layer - 1, 0) if layer > 1 else (0,)

    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return 1 − q and q."""
        enter = (self.slope * gates[0] + 0.5).clamp(0, 1)
        return 1 - enter, enter

    def output(self, state: State) -> Tensor:
        """Return the normalised state."""
        return self.norm(state[0])

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Make all steps in one compiled loop, and normalise the states."""
        states, last = super().scan(x, state, lengths)
        output = self.norm(states)
        if lengths is not None:
            steps = torch.arange(len(x), device=x.device).unsqueeze(1)
            output = output.masked_fill((steps >= lengths).unsqueeze(-1), 0.0)
        return output, last


class SRU(Recurrent, cell=SRUCell, name="sru"): ...


class MinGRU(Recurrent, cell=MinGRUCell, name="mingru"): ...


class MinLSTM(Recurrent, cell=MinLSTMCell, name="minlstm"): ...


class Latch(Recurrent, cell=LatchCell, name="latch"): ...
