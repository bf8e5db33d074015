"""Elman RNN (Elman, 1990): the network whose gradient vanishes or explodes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Step
from undamped.nn.bases.activations import activation_kernel
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.bases.torch_kernels import gate_parameters, kernel_scan, summed_bias
from undamped.nn.torch_like import TorchLike


class RNNCell(CoupledCell):
    """Elman RNN: one dense recurrent matrix and a squashing function.

    Equation:
        h' = φ(W_hh h + W_xh x + b),  φ = tanh or relu

    Symbols:
        h hidden state, x input, W_hh recurrent matrix, W_xh input matrix, b bias (kept as two
        vectors, as torch.nn.RNN does, so that weights can be exchanged with it).

    Promise:
        ‖∂h_T/∂h_t‖ ≤ ‖W_hh‖^(T−t): a product that vanishes when ‖W_hh‖ < 1 and may explode
        when it is larger.

    Args:
        nonlinearity: The function φ.
        bias: Whether there are biases.

    Example:
        >>> net = undamped.nn.RNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))
        >>> output.shape
        torch.Size([50, 4, 16])

    Reference:
        J. L. Elman. Finding structure in time. Cognitive Science 14, 1990.
    """

    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ ‖W_hh‖ at every step"),)
    torch_class = nn.RNN

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.nonlinearity: Literal["tanh", "relu"] = nonlinearity
        self.weight_ih: Tensor
        self.weight_hh: Tensor
        self.bias_ih: Tensor | None
        self.bias_hh: Tensor | None
        gate_parameters(self, input_size, hidden_size, gates=1, bias=bias)

    def input_tensors(self) -> State:
        """W_xh and b."""
        return self.weight_ih, *summed_bias(self.bias_ih, self.bias_hh)

    def constants(self) -> State:
        """W_hh."""
        return (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """φ(W_hh h + projected)."""
        total = projected + self.product(state, constants)
        return (torch.tanh(total) if self.nonlinearity == "tanh" else torch.relu(total),)

    def elementwise(self) -> Step:
        """The kernel of φ."""
        return activation_kernel(self.nonlinearity)

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Scan in torch's kernel."""
        kernel = torch.rnn_tanh if self.nonlinearity == "tanh" else torch.rnn_relu
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        return kernel_scan(kernel, x, state, weights, lengths)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """W_hh."""
        return (self.weight_hh,)

    def recurrent_matrix(self) -> Tensor:
        """W_hh, for the instruments."""
        return self.weight_hh

    def step_gradient_bound(self) -> Tensor:
        """‖W_hh‖₂; both functions φ have slopes between 0 and 1."""
        return torch.linalg.matrix_norm(self.weight_hh, 2)


@models.register("rnn")
class RNN(TorchLike):
    """Stacked layers of `RNNCell`, which has the equation and the options."""

    cell_class = RNNCell
