"""oRNN (Mhammedi et al., 2017): orthogonal by Householder reflections."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Operator, operators
from undamped.nn.bases.activations import Activation
from undamped.nn.bases.cell import State
from undamped.nn.bases.isometric import IsometricCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.householder import Householder, reflection_factors


class ORNNCell(IsometricCell):
    """oRNN: the recurrent matrix is a product of m reflections, applied in O(mn).

    Equation:
        h' = φ(W h + V x + b),  W = H₁ … H_m,  H_i = I − 2 v_i v_iᵀ/‖v_i‖²

    Symbols:
        h hidden state, x input, V input matrix, b bias, v_i trained vectors of which the first
        i − 1 entries are zero, φ leaky relu (slope 0.1).

    Promise:
        W keeps every norm before, during and after training. m trades capacity for speed: W is
        the identity on n − m directions, where inputs of different times are added up and their
        order is lost. d inputs so reach at most d + m directions of the state, however long the
        sequence. The copy task (ten symbols, one-hot in ten features) asks for 100: 128 units
        with 16 reflections reach 26 and cannot learn it, with 90 or more all 100.

    Args:
        reflections: The number m; 16 or the hidden size, whichever is smaller, if none is given.

    Example:
        >>> net = undamped.nn.oRNN(3, 64, reflections=8)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        Z. Mhammedi, A. Hellicar, A. Rahman, J. Bailey. Efficient orthogonal parametrisation of
        recurrent neural networks using Householder reflections. ICML, 2017.
    """

    promises = (
        Promise(Kind.ISOMETRIC, "W is orthogonal, trained or not"),
        Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),
    )

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Activation = "leaky-relu",
        reflections: PositiveInt | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        count = min(16, hidden_size) if reflections is None else reflections
        maps = Householder(hidden_size, count)
        self.reflections = maps.reflections
        self.vectors = nn.Parameter(maps.sample_vectors().to(self.bias))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """The reflections."""
        return [self.vectors]

    def constants(self) -> State:
        """The factors A, B of W = I − BᵀAᵀ as rows see it: h → h − (h A) B."""
        unit, rest = reflection_factors(self.vectors)
        return rest.mT.contiguous(), unit.mT.contiguous()

    def product(self, state: State, constants: State) -> Tensor:
        """W h in O(mn)."""
        down, up = constants
        return state[0] - (state[0] @ down) @ up

    def linear_tensors(self, constants: State) -> State:
        """Both factors."""
        return constants

    def operator(self) -> Operator:
        """The kernel of h − (h A) B."""
        return operators.LowRank()

    def recurrent_matrix(self) -> Tensor:
        """W, multiplied out."""
        down, up = self.constants()
        return (torch.eye(self.hidden_size).to(down) - down @ up).mT

    def step_gradient_bound(self) -> Tensor:
        """One: W is orthogonal, and φ has slopes between 0 and 1."""
        return torch.tensor(1.0)


@models.register("ornn")
class oRNN(Recurrent):
    """Stacked layers of `ORNNCell`, which has the equation and the options."""

    cell_class = ORNNCell
