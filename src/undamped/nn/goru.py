"""GORU (Jing et al., 2019): a gated unit around an orthogonal matrix."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import steps
from undamped.nn.bases.activations import modrelu
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.exponential import Exponential
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start


class GORUCell(CoupledCell):
    """GORU: a GRU whose candidate reads the state through an orthogonal matrix.

    Equation:
        r = σ̂(U_r h + V_r x + b_r),  u = σ̂(U_u h + V_u x + b_u)
        c = modReLU(V x + r ⊙ (O h)),  h' = u ⊙ h + (1 − u) ⊙ c

    Symbols:
        h hidden state, x input, r reset gate, u update gate, c candidate, O orthogonal (here the
        exponential of a trained skew matrix; the paper multiplies plane rotations).

    Promise:
        O preserves every norm before, during and after training; the gates may still forget.

    Args:
        initialisation: How the initial O is drawn.
        reset_bias: Initial value of b_r; 2 in the authors' program.

    Example:
        >>> net = undamped.nn.GORU(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        L. Jing, C. Gulcehre, J. Peurifoy, Y. Shen, M. Tegmark, M. Soljačić, Y. Bengio. Gated
        orthogonal recurrent units: on learning to forget. Neural Computation 31, 2019.
    """

    promises = (Promise(Kind.ISOMETRIC, "O is a rotation, trained or not"),)
    costly_constants = True
    needs_full_precision = True
    kernel = steps.GatedOrthogonal()

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        initialisation: OrthogonalStart = "random",
        reset_bias: float = 2.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.gate_weight = nn.Parameter(torch.empty(2 * hidden_size, hidden_size))
        # As in the authors' program: gates are nearly constant, and the candidate is nearly O h.
        nn.init.uniform_(self.input_weight, -0.01, 0.01)
        nn.init.uniform_(self.gate_weight, -0.01, 0.01)
        self.gate_bias = nn.Parameter(torch.zeros(2 * hidden_size))
        nn.init.constant_(self.gate_bias[:hidden_size], reset_bias)
        # 0.01, and the 0.001 that their modReLU adds to every modulus.
        self.bias = nn.Parameter(torch.full((hidden_size,), 0.011))
        self.orthogonal: Tensor = nn.Parameter(orthogonal_start(initialisation, hidden_size))
        parametrize.register_parametrization(self, "orthogonal", Exponential(hidden_size))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the skew matrix of O."""
        return self.parametrizations["orthogonal"].parameters()  # type: ignore[index]

    def recurrent_matrix(self) -> Tensor:
        """Return O."""
        return self.orthogonal

    def constants(self) -> State:
        """Return U_r, U_u and O, stacked."""
        return (torch.cat([self.gate_weight, self.orthogonal]),)

    def input_tensors(self) -> State:
        """Return V of both gates and the candidate, and the biases of the gates."""
        return self.input_weight, torch.cat([self.gate_bias, torch.zeros_like(self.bias)])

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Compute gates and candidate, and mix it with the state."""
        reset, update, rotated = self.product(state, constants).chunk(3, dim=-1)
        reset_x, update_x, x = projected.chunk(3, dim=-1)
        u = torch.sigmoid(update + update_x)
        candidate = modrelu(x + torch.sigmoid(reset + reset_x) * rotated, self.bias)
        return (u * state[0] + (1 - u) * candidate,)

    def elementwise_tensors(self, constants: State) -> State:
        """Return the threshold of modReLU."""
        return (self.bias,)


@models.register("goru")
class GORU(Recurrent):
    cell_class = GORUCell
