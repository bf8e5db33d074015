"""Euler steps of a stable ODE: AntisymmetricRNN and Lipschitz RNN.

AntisymmetricRNN (Chang et al., 2019), plain and gated, has a skew recurrent matrix; Lipschitz RNN
(Erichson et al., 2021) has a linear part and a Lipschitz part, both stable.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from undamped._base.options import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.exponential import Skew


class AntisymmetricRNNCell(CoupledCell):
    """AntisymmetricRNN: an Euler step of an ODE whose Jacobian has an imaginary spectrum.

    Equation:
        h' = h + ε tanh((A − γI) h + V x + b),  A = −Aᵀ

    Symbols:
        h hidden state, x input, A = W − Wᵀ trained, γ diffusion against the growth of Euler steps,
        ε step, V input matrix, b bias.

    Promise:
        The Jacobian of the ODE has eigenvalues with real parts between −γ and zero: signals neither
        vanish nor grow in continuous time.

    Args:
        step: The step ε.
        diffusion: The number γ.
        weight_std: Standard deviation of √n times the initial entries of W.

    Example:
        >>> net = undamped.nn.AntisymmetricRNN(3, 16, step=0.05)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        B. Chang, M. Chen, E. Haber, E. H. Chi. AntisymmetricRNN: a dynamical system view on
        recurrent neural networks. ICLR, 2019.
    """

    promises = (
        Promise(Kind.STABLE_FLOW, "Jacobian eigenvalues of the ODE have real parts in [−γ, 0]"),
        Promise(Kind.BOUNDED_STATE, "|h| ≤ εt after t steps from a zero state"),
    )
    projections = 1
    costly_constants = True
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.03,
        diffusion: NonNegativeFloat = 0.001,
        weight_std: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.step, self.diffusion = step, diffusion
        self.input_weight = nn.Parameter(torch.empty(self.projections * hidden_size, input_size))
        self.bias = nn.Parameter(torch.zeros(self.projections * hidden_size))
        nn.init.normal_(self.input_weight, std=input_size**-0.5)
        free = torch.randn(hidden_size, hidden_size) * weight_std * hidden_size**-0.5
        self.weight: Tensor = nn.Parameter(free - free.t())
        parametrize.register_parametrization(self, "weight", Skew(hidden_size))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return nothing: A is linear in its parameters and is trained like any other matrix."""
        return ()

    def constants(self) -> State:
        """Return A − γI."""
        return (self.weight - self.diffusion * torch.eye(self.hidden_size).to(self.weight),)

    def flow_jacobian(self, projected: Tensor, state: State) -> Tensor:
        """Return the Jacobian (batch, hidden, hidden) of the right-hand side at a state."""
        (matrix,) = self.constants()
        slope = 1 - torch.tanh(projected + self.product(state, (matrix,))).square()
        return slope.unsqueeze(-1) * matrix

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        return (state[0] + self.step * torch.tanh(projected + self.product(state, constants)),)

    def elementwise(self) -> Step:
        return steps.Euler(self.step)

    def state_bound(self, steps: int) -> tuple[float]:
        """Return εt, since tanh is at most one."""
        return (self.step * steps,)


class GatedAntisymmetricRNNCell(AntisymmetricRNNCell):
    """Gated AntisymmetricRNN: the same Euler step times a gate, which uses the same product.

    Equation:
        z = σ̂((A − γI) h + V_z x + b_z)
        h' = h + ε z ⊙ tanh((A − γI) h + V x + b),  A = −Aᵀ

    Symbols:
        As in antisymmetric; z the gate, with separate input matrix and bias.

    Promise:
        As antisymmetric for a constant gate; a gate that depends on the state adds a term with its
        slope to the Jacobian.
    """

    promises = (
        Promise(Kind.STABLE_FLOW, "gates held, Jacobian eigenvalues have real parts in [−γ, 0]"),
        Promise(Kind.BOUNDED_STATE, "|h| ≤ εt after t steps from a zero state"),
    )
    projections = 2

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        candidate, gate = projected.chunk(2, dim=-1)
        product = self.product(state, constants)
        z = torch.sigmoid(gate + product)
        return (state[0] + self.step * z * torch.tanh(candidate + product),)

    def flow_jacobian(self, projected: Tensor, state: State) -> Tensor:
        """Return the Jacobian of the right-hand side for constant gates."""
        (matrix,) = self.constants()
        candidate, gate = projected.chunk(2, dim=-1)
        product = self.product(state, (matrix,))
        slope = torch.sigmoid(gate + product) * (1 - torch.tanh(candidate + product).square())
        return slope.unsqueeze(-1) * matrix

    def elementwise(self) -> Step:
        return steps.GatedEuler(self.step)


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
        linear, inner = self.product(state, constants).chunk(2, dim=-1)
        return (state[0] + self.step * (linear + torch.tanh(inner + projected)),)

    def elementwise(self) -> Step:
        return steps.Lipschitz(self.step)

    def step_gradient_bound(self) -> Tensor:
        """Return ‖I + εA‖ + ε‖W‖."""
        first, second = self.matrices()
        eye = torch.eye(self.hidden_size).to(first)
        linear = torch.linalg.matrix_norm(eye + self.step * first, 2)
        return linear + self.step * torch.linalg.matrix_norm(second, 2)


class AntisymmetricRNN(Recurrent, cell=AntisymmetricRNNCell, name="antisymmetric"): ...


class GatedAntisymmetricRNN(
    Recurrent, cell=GatedAntisymmetricRNNCell, name="gated-antisymmetric"
): ...


class LipschitzRNN(Recurrent, cell=LipschitzRNNCell, name="lipschitz"): ...
