"""SRU (Lei et al., 2018): an elementwise recurrence, with all matrices outside of it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Operator, operators, steps
from undamped.kernels.dispatch import on_gpu
from undamped.kernels.sru.scan import light_scan
from undamped.nn.bases.cell import ScanResult, State
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


@models.register("sru")
class SRU(Recurrent):
    cell_class = SRUCell
