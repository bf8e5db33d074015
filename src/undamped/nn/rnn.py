"""Elman RNN (Elman, 1990), and two initialisations of it: IRNN and RNN-orth.

IRNN (Le, Jaitly and Hinton, 2015) starts as the identity, RNN-orth (Henaff, Szlam and LeCun, 2016)
as a rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Step
from undamped.nn.bases.cell import ScanResult, State, loop_scan
from undamped.nn.bases.coupled import activation_kernel, modrelu
from undamped.nn.torch_like import TorchCell, TorchLike
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start


class RNNCell(TorchCell):
    """Elman RNN: one dense recurrent matrix and an activation.

    Equation:
        h' = φ(W_hh h + W_xh x + b),  φ = tanh or relu

    Symbols:
        h hidden state, x input, W_hh recurrent matrix, W_xh input matrix, b bias (stored as the sum
        of two vectors, as in torch.nn.RNN, so that weights can be exchanged with it).

    Promise:
        ‖∂h_T/∂h_t‖ ≤ ‖W_hh‖^(T−t): a product that vanishes when ‖W_hh‖ < 1 and may explode
        when it is larger.

    Args:
        nonlinearity: The function φ.

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
    gates = 1

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        self.nonlinearity: Literal["tanh", "relu"] = nonlinearity
        self.torch_kernel = f"rnn_{nonlinearity}"

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        total = projected + self.product(state, constants)
        return (torch.tanh(total) if self.nonlinearity == "tanh" else torch.relu(total),)

    def elementwise(self) -> Step:
        return activation_kernel(self.nonlinearity)

    def recurrent_matrix(self) -> Tensor:
        """Return W_hh."""
        return self.weight_hh

    def step_gradient_bound(self) -> Tensor:
        """Return ‖W_hh‖₂; both functions φ have slopes between 0 and 1."""
        return torch.linalg.matrix_norm(self.weight_hh, 2)

    def zero_biases(self) -> None:
        """Set both biases to zero."""
        for name in ("bias_ih", "bias_hh"):
            nn.init.zeros_(self.get_parameter(name))


class IRNNCell(RNNCell):
    """IRNN: an Elman RNN with relu, whose recurrent matrix starts as the identity.

    Equation:
        h' = relu(W_hh h + W_xh x + b),  W_hh = s·I and b = 0 at the start

    Symbols:
        h hidden state, x input, s the scale of the identity (1 in most of the paper's tasks).

    Promise:
        With s = 1 the initial network sums its inputs: the gradient through active units is exactly
        the identity. Training may change that.

    Args:
        scale: The number s on the initial diagonal.
        input_std: Standard deviation of the initial W_xh, which is Gaussian.

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. arXiv:1504.00941, 2015.
    """

    promises = (
        *RNNCell.promises,
        Promise(Kind.STARTS_ISOMETRIC, "the linear part of a step starts as the identity"),
    )
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        scale: PositiveFloat = 1.0,
        input_std: NonNegativeFloat = 0.001,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity="relu")
        nn.init.normal_(self.weight_ih, std=input_std)
        nn.init.eye_(self.weight_hh)
        self.zero_biases()
        self.weight_hh.data.mul_(scale)


class RNNOrthCell(RNNCell):
    """RNN-orth: an Elman RNN whose recurrent matrix is initially a rotation, and unconstrained.

    Equation:
        h' = φ(W_hh h + W_xh x + b),  W_hhᵀ W_hh = I and b = 0 at the start

    Symbols:
        h hidden state, x input. "random" draws the rotation uniformly; "henaff" has 2 × 2 rotations
        by angles in (−π, π) on the diagonal, "cayley" by angles in (0, π/2).

    Promise:
        The linear part of the initial network preserves every norm. Training may change that; other
        cells constrain their matrix to stay orthogonal. How long W_hh stays near a rotation depends
        on the step size, so training gives W_hh the second learning rate. On the copy task over 100
        steps (128 units, modReLU, RMSprop), one rate of 2e-4 for all parameters spread the singular
        values to 0.86 and 1.20 in 250 updates, with a loss above the chance level. With 1e-4 for
        W_hh and 1e-3 for the rest they stayed within 0.93 and 1.05, and the loss was 0.008 (chance
        level 0.173).

    Args:
        nonlinearity: The function φ; for modrelu b is its threshold.
        initialisation: How the rotation is drawn.

    Example:
        >>> net = undamped.nn.RNNOrth(3, 16, initialisation="henaff")
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        M. Henaff, A. Szlam, Y. LeCun. Recurrent orthogonal networks and long-memory tasks.
        ICML, 2016.
    """

    promises = (
        *RNNCell.promises,
        Promise(Kind.STARTS_ISOMETRIC, "the linear part of a step starts as a rotation"),
    )

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Literal["tanh", "relu", "modrelu"] = "tanh",
        initialisation: OrthogonalStart = "henaff",
    ) -> None:
        plain = "tanh" if nonlinearity == "modrelu" else nonlinearity
        super().__init__(input_size, hidden_size, nonlinearity=plain)
        self.thresholds = nonlinearity == "modrelu"
        self.weight_hh.data.copy_(orthogonal_start(initialisation, hidden_size))
        self.zero_biases()

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return W_hh: it is unconstrained, but only small steps leave it near a rotation."""
        return [self.get_parameter("weight_hh")]

    def input_tensors(self) -> State:
        return (self.weight_ih,) if self.thresholds else super().input_tensors()

    def constants(self) -> State:
        return self.weight_hh, *(self.summed_bias() if self.thresholds else ())

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        if not self.thresholds:
            return super().advance(projected, state, constants)
        return (modrelu(projected + self.product(state, constants), constants[1]),)

    def _step_function(self) -> Callable[[Tensor, State], State] | None:
        return None if self.thresholds else super()._step_function()

    def elementwise(self) -> Step:
        return activation_kernel("modrelu") if self.thresholds else super().elementwise()

    def plain_scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan in torch's kernel, which has no modReLU."""
        if self.thresholds:
            return loop_scan(self, x, state, lengths)
        return super().plain_scan(x, state, lengths)


class RNN(TorchLike, cell=RNNCell, name="rnn"): ...


class IRNN(TorchLike, cell=IRNNCell, name="irnn"): ...


class RNNOrth(TorchLike, cell=RNNOrthCell, name="rnn-orth"): ...
