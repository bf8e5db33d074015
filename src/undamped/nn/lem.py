"""LEM (Rusch et al., 2022): two states with learned step lengths."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveInt, Range
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent

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
        """Return the matrices that multiply y and z."""
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
        """Return the kernel of both states."""
        return steps.LongExpressive(self.dt)

    def elementwise_tensors(self, constants: State) -> State:
        """Return W_y transposed for the forward pass, and as it is for the backward pass."""
        return constants[1].t().contiguous(), constants[1].detach()

    def state_bound(self, steps: int) -> tuple[float, float]:
        """Return 1 − (1 − Δt)ⁿ for both, from a zero state."""
        bound = 1 - (1 - self.dt) ** steps
        return bound, bound


@models.register("lem")
class LEM(Recurrent):
    cell_class = LEMCell
