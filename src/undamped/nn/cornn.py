"""coRNN (Rusch and Mishra, 2021) and LEM (Rusch et al., 2022): discretised systems of ODEs."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, Range
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class CoRNNCell(CoupledCell):
    """coRNN: every unit is a damped oscillator, forced by all units.

    Equation:
        z' = z + Δt (tanh(W y + 𝒲 z + V x + b) − γ y − ε z)
        y' = y + Δt z'

    Symbols:
        y position (the output), z velocity, x input, W and 𝒲 recurrent matrices, V input matrix,
        b bias, Δt step, γ restoring force, ε damping (of the old velocity).

    Promise:
        Each unit is a linear damped oscillator under a force of size at most one, so that states
        stay below the sum of its impulse response, for any weights.

    Args:
        hidden_size: Number of oscillators.
        dt: The step Δt. The paper's (Δt, γ, ε): adding (0.06, 66, 15), sequential MNIST (0.042,
            2.7, 4.7), permuted MNIST (0.076, 0.4, 8), noise-padded CIFAR (0.034, 1.3, 12.7).
        gamma: The restoring force γ.
        epsilon: The damping ε.

    Example:
        >>> net = undamped.nn.coRNN(3, 16, dt=0.05)
        >>> output, (position, velocity) = net(torch.randn(50, 4, 3))

    Reference:
        T. K. Rusch, S. Mishra. Coupled oscillatory recurrent neural network (coRNN): an accurate
        and (gradient) stable architecture for learning long time dependencies. ICLR, 2021.
    """

    promises = (
        Promise(Kind.BOUNDED_STATE, "|y| and |z| stay below the sum of the impulse response"),
    )
    state_names = ("position", "velocity")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        dt: PositiveFloat = 0.042,
        gamma: NonNegativeFloat = 2.7,
        epsilon: NonNegativeFloat = 4.7,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.dt, self.gamma, self.epsilon = dt, gamma, epsilon
        # In the authors' program one linear layer reads (x, y, z), with torch's default draw.
        bound = (input_size + 2 * hidden_size) ** -0.5
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(hidden_size, 2 * hidden_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        for parameter in (self.input_weight, self.weight_hh, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        return self.weight_hh.chunk(2, dim=1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Update the velocity from old position and velocity, then the position."""
        y, z = state
        force = torch.tanh(projected + self.product(state, constants))
        z = z + self.dt * (force - self.gamma * y - self.epsilon * z)
        return y + self.dt * z, z

    def elementwise(self) -> Step:
        return steps.CoupledOscillator(self.dt, self.gamma, self.epsilon)

    def state_bound(self, steps: int) -> tuple[float, float]:
        """Return the sums of |y| and |z| in response to a unit force, the worst case."""
        dt, decay = self.dt, 1 - self.dt * self.epsilon
        y, z, position, velocity = dt * dt, dt, 0.0, 0.0
        for _ in range(steps):
            position, velocity = position + abs(y), velocity + abs(z)
            z = decay * z - dt * self.gamma * y
            y = y + dt * z
        return position, velocity


LongestStep = Annotated[float, Range(low=0, high=1, open_low=True)]


class LEMCell(CoupledCell):
    """LEM, long expressive memory: every unit learns the length of its next step.

    Equation:
        a = Δt σ̂(W₁ y + V₁ x + b₁),  c = Δt σ̂(W₂ y + V₂ x + b₂)
        z' = (1 − a) ⊙ z + a ⊙ tanh(W_z y + V_z x + b_z)
        y' = (1 − c) ⊙ y + c ⊙ tanh(W_y z' + V_y x + b_y)

    Symbols:
        y hidden state (the output), z memory, x input, a and c lengths of steps, at most Δt, W
        recurrent and V input matrices, b biases.

    Promise:
        States are averages of values of tanh: |y| and |z| are at most 1 − (1 − Δt)ⁿ after n steps,
        for any weights.

    Args:
        dt: The longest step Δt.

    Example:
        >>> net = undamped.nn.LEM(3, 16)
        >>> output, (y, z) = net(torch.randn(50, 4, 3))

    Reference:
        T. K. Rusch, S. Mishra, N. B. Erichson, M. W. Mahoney. Long expressive memory for sequence
        modeling. ICLR, 2022.
    """

    promises = (Promise(Kind.BOUNDED_STATE, "|y| and |z| ≤ 1 − (1 − Δt)ⁿ after n steps"),)
    state_names = ("hidden", "memory")

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, *, dt: LongestStep = 1.0
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.dt = dt
        bound, n = hidden_size**-0.5, hidden_size

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

        # The blocks of a, c and z are stacked; that of y multiplies z.
        self.weight_hh = uniform(3 * n, n)
        self.weight_zy = uniform(n, n)
        self.input_weight = uniform(4 * n, input_size)
        self.bias = uniform(4 * n)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """Return the square blocks that multiply y, and the one that multiplies z."""
        return (*self.weight_hh.chunk(3), self.weight_zy)

    def constants(self) -> State:
        return self.weight_hh, self.weight_zy

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Update z, then y from the new z."""
        y, z = state
        of_y, of_z = constants
        first, second, fast, slow = projected.chunk(4, dim=-1)
        p, q, r = F.linear(y, of_y).chunk(3, dim=-1)
        a, c = self.dt * torch.sigmoid(p + first), self.dt * torch.sigmoid(q + second)
        z = z + a * (torch.tanh(r + fast) - z)
        return y + c * (torch.tanh(F.linear(z, of_z) + slow) - y), z

    def elementwise(self) -> Step:
        return steps.LongExpressive(self.dt)

    def elementwise_tensors(self, constants: State) -> State:
        """Return W_y transposed for the forward pass, and as it is for the backward pass."""
        return constants[1].t().contiguous(), constants[1].detach()

    def state_bound(self, steps: int) -> tuple[float, float]:
        """Return 1 − (1 − Δt)ⁿ for both, from a zero state."""
        bound = 1 - (1 - self.dt) ** steps
        return bound, bound


class coRNN(Recurrent, cell=CoRNNCell, name="cornn"): ...


class LEM(Recurrent, cell=LEMCell, name="lem"): ...
