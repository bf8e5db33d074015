"""Residual steps: FastRNN, FastGRNN and Incremental RNN.

FastRNN and FastGRNN (Kusupati et al., 2018) make a weighted residual step, plain and gated;
Incremental RNN (Kag, Zhang and Saligrama, 2020) keeps states on an equilibrium manifold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveFloat, PositiveInt
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class FastCell(CoupledCell):
    """Matrices of FastRNN and FastGRNN.

    Reference:
        A. Kusupati, M. Singh, K. Bhatia, A. Kumar, P. Jain, M. Varma. FastGRNN: a fast, accurate,
        stable and tiny kilobyte sized gated recurrent neural network. NeurIPS, 2018.
    """

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = nn.Parameter(0.1 * torch.randn(hidden_size, input_size))
        self.weight_hh = nn.Parameter(0.1 * torch.randn(hidden_size, hidden_size))

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        return (self.weight_hh,)


class FastRNNCell(FastCell):
    """FastRNN: a weighted sum of an Elman step and the old state, with two trained weights.

    Equation:
        h' = α tanh(U h + V x + b) + β h,  α = σ̂(a), β = σ̂(c)

    Symbols:
        h hidden state, x input, U recurrent matrix, V input matrix, b bias; a and c are trained
        numbers.

    Promise:
        None strict; with α ≪ 1 and β ≈ 1 − α a step is close to the identity.

    Args:
        new_logit: Initial value of a.
        old_logit: Initial value of c.
    """

    kernel = steps.WeightedSum()

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        new_logit: float = -3.0,
        old_logit: float = 3.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.bias = nn.Parameter(torch.ones(hidden_size))
        self.new_logit = nn.Parameter(torch.tensor([new_logit]))
        self.old_logit = nn.Parameter(torch.tensor([old_logit]))

    def constants(self) -> State:
        return self.weight_hh, torch.sigmoid(self.new_logit), torch.sigmoid(self.old_logit)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        _, new, old = constants
        return (new * torch.tanh(projected + self.product(state, constants)) + old * state[0],)


class FastGRNNCell(FastCell):
    """FastGRNN: one gate that shares all its matrices with the candidate.

    Equation:
        s = U h + V x,  z = σ̂(s + b_z),  c = tanh(s + b)
        h' = (ζ(1 − z) + ν) ⊙ c + z ⊙ h,  ζ and ν in (0, 1)

    Symbols:
        h hidden state, x input, U recurrent matrix, V input matrix, z gate, c candidate, ζ and ν
        sigmoids of trained logits.

    Promise:
        None strict.

    Args:
        closed_logit: Initial value of the logit of ζ.
        always_logit: Initial value of the logit of ν.
    """

    kernel = steps.FastGate()

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        closed_logit: float = 1.0,
        always_logit: float = -4.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.gate_bias = nn.Parameter(torch.ones(hidden_size))
        self.bias = nn.Parameter(torch.ones(hidden_size))
        self.closed_logit = nn.Parameter(torch.tensor([closed_logit]))
        self.always_logit = nn.Parameter(torch.tensor([always_logit]))

    def constants(self) -> State:
        """Return U, the difference of the biases of gate and candidate, ζ and ν."""
        weights = torch.sigmoid(self.closed_logit), torch.sigmoid(self.always_logit)
        return self.weight_hh, self.gate_bias - self.bias, *weights

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Compute gate and candidate from one sum."""
        _, shift, closed, always = constants
        total = projected + self.product(state, constants)
        z = torch.sigmoid(total + shift)
        return ((closed * (1 - z) + always) * torch.tanh(total) + z * state[0],)


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
        return (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make K Euler steps and return the increment."""
        total = state[0]
        for step in self.steps.unbind():
            force = torch.tanh(torch.addmm(projected, total, constants[0].t()))
            total = total + step * (force - self.alpha * total)
        return (total - state[0],)

    def elementwise(self) -> Step:
        return steps.Iterated(self.alpha)

    def elementwise_tensors(self, constants: State) -> State:
        return (self.steps,)


class FastRNN(Recurrent, cell=FastRNNCell, name="fastrnn"): ...


class FastGRNN(Recurrent, cell=FastGRNNCell, name="fastgrnn"): ...


class IncrementalRNN(Recurrent, cell=IncrementalRNNCell, name="incremental"): ...
