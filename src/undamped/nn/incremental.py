"""Incremental RNN (Kag, Zhang and Saligrama, 2020): states on an equilibrium manifold."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class IncrementalRNNCell(CoupledCell):
    """Incremental RNN: each step solves an ODE towards its equilibrium; the state is the increment.

    Equation:
        s₀ = h,  s_{i+1} = s_i + η_i (tanh(U s_i + V x + b) − α s_i),  i < K
        h' = s_K − h

    Symbols:
        h hidden state, x input, U recurrent matrix, V input matrix, b bias, η_i trained steps,
        α decay, K iterations; s is the old state plus the increment.

    Promise:
        At the equilibrium s no longer depends on its start, so ∂h'/∂h = −I: the gradient neither
        vanishes nor explodes, for any U.

    Args:
        iterations: The number K; the paper uses 1 to 5.
        step: Initial value of all η_i.
        alpha: The decay α.

    Example:
        >>> net = undamped.nn.IncrementalRNN(3, 16, iterations=3)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        A. Kag, Z. Zhang, V. Saligrama. RNNs incrementally evolving on an equilibrium manifold: a
        panacea for vanishing and exploding gradients? ICLR, 2020.
    """

    promises = (Promise(Kind.UNIT_GRADIENT, "at equilibrium ∂h'/∂h = −I"),)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        iterations: PositiveInt = 5,
        step: PositiveFloat = 0.1,
        alpha: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.iterations, self.alpha = iterations, alpha
        self.input_weight = nn.Parameter(0.1 * torch.randn(hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        self.steps = nn.Parameter(torch.full((iterations,), step))

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """Return U."""
        return (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make K Euler steps and return the increment."""
        total = state[0]
        for step in self.steps.unbind():
            force = torch.tanh(torch.addmm(projected, total, constants[0].t()))
            total = total + step * (force - self.alpha * total)
        return (total - state[0],)

    def elementwise(self) -> Step:
        """Return the kernel of the iterations."""
        return steps.Iterated(self.alpha)

    def elementwise_tensors(self, constants: State) -> State:
        """Return the trained steps."""
        return (self.steps,)


@models.register("incremental")
class IncrementalRNN(Recurrent):
    cell_class = IncrementalRNNCell
