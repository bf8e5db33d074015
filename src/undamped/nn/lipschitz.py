"""Lipschitz RNN (Erichson et al., 2021): a linear part and a Lipschitz one, both stable."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.options import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class LipschitzRNNCell(CoupledCell):
    """Lipschitz RNN: an Euler step of ḣ = A h + tanh(W h + V x + b), with A and W nearly skew.

    Equation:
        h' = h + ε (A h + tanh(W h + V x + b))
        A and W = β(M − Mᵀ) + (1 − β)(M + Mᵀ) − γI, with a separate M for each

    Symbols:
        h hidden state, x input, V input matrix, b bias, M trained, β how skew (1: entirely),
        γ damping, ε step.

    Promise:
        ‖∂h'/∂h‖ ≤ ‖I + εA‖ + ε‖W‖ at every step. In continuous time the system is globally
        stable when the symmetric part of A outweighs ‖W‖.

    Args:
        step: The step ε.
        beta: The number β of both matrices.
        gamma: The number γ of both matrices.
        weight_std: Standard deviation of n times the initial entries of M.

    Example:
        >>> net = undamped.nn.LipschitzRNN(3, 16, step=0.1)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        N. B. Erichson, O. Azencot, A. Queiruga, L. Hodgkinson, M. W. Mahoney. Lipschitz recurrent
        neural networks. ICLR, 2021.
    """

    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ ‖I + εA‖ + ε‖W‖ at every step"),)
    costly_constants = True
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.03,
        beta: Fraction = 0.75,
        gamma: NonNegativeFloat = 0.001,
        weight_std: PositiveFloat = 0.1,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.step, self.beta, self.gamma = step, beta, gamma
        self.linear_free = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.lipschitz_free = nn.Parameter(torch.empty(hidden_size, hidden_size))
        for free in (self.linear_free, self.lipschitz_free):
            nn.init.normal_(free, std=weight_std / hidden_size)
        bound = input_size**-0.5
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Return A and W."""
        eye = torch.eye(self.hidden_size).to(self.linear_free)
        first, second = (
            self.beta * (free - free.mT) + (1 - self.beta) * (free + free.mT) - self.gamma * eye
            for free in (self.linear_free, self.lipschitz_free)
        )
        return first, second

    def constants(self) -> State:
        """Return A above W, for one product with both."""
        return (torch.cat(self.matrices()),)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one Euler step."""
        linear, inner = self.product(state, constants).chunk(2, dim=-1)
        return (state[0] + self.step * (linear + torch.tanh(inner + projected)),)

    def elementwise(self) -> Step:
        """Return the kernel of the Euler step."""
        return steps.Lipschitz(self.step)

    def step_gradient_bound(self) -> Tensor:
        """Return ‖I + εA‖ + ε‖W‖."""
        first, second = self.matrices()
        eye = torch.eye(self.hidden_size).to(first)
        linear = torch.linalg.matrix_norm(eye + self.step * first, 2)
        return linear + self.step * torch.linalg.matrix_norm(second, 2)


@models.register("lipschitz")
class LipschitzRNN(Recurrent):
    cell_class = LipschitzRNNCell
