"""Full-capacity uRNN (Wisdom et al., 2016): any unitary matrix, updated multiplicatively."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped.cells.bases.unitary import UnitaryCell
from undamped.cells.registry import network
from undamped.options import PositiveInt
from undamped.parametrizations.riemannian import Riemannian


@network("full-capacity-urnn", "FullCapacityURNN")
class FullCapacityURNNCell(UnitaryCell):
    """Full-capacity uRNN: W is any unitary matrix, moved along the unitary matrices.

    Equation:
        h' = modReLU(W h + V x)
        after an update: A = G Wᴴ − W Gᴴ,  W ← (I + A/2)⁻¹ (I − A/2) W

    Symbols:
        h complex hidden state, kept as (real | imaginary); x input, V complex input matrix, −G
        the step that the optimiser proposed (with its learning rate and normalisation inside).

    Promise:
        W keeps every norm before, during and after training; between two projections only
        rounding moves it off.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of complex units; outputs are twice as wide.
        project_every: After how many updates W is put back on the set against rounding.

    Example:
        >>> net = undamped.FullCapacityURNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        S. Wisdom, T. Powers, J. Hershey, J. Le Roux, L. Atlas. Full-capacity unitary recurrent
        neural networks. NeurIPS, 2016.
    """

    previous: Tensor

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, *, project_every: PositiveInt = 100
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.project_every = project_every
        self.maps = Riemannian(hidden_size)
        start = self.maps.right_inverse(self.maps.sample())
        self.unitary = nn.Parameter(start.to(self.bias))
        self.register_buffer("previous", self.unitary.detach().clone(), persistent=False)
        self.register_load_state_dict_post_hook(_remember)

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """W itself."""
        return [self.unitary]

    def recurrent_matrix(self) -> Tensor:
        """W."""
        return self.maps(self.unitary)

    def after_optimizer_step(self, step: int) -> None:
        """Replace the optimiser's step by the one along the unitary matrices."""
        project = step % self.project_every == 0
        self.maps.settle(self.unitary, self.previous, project=project)
        self.previous = self.unitary.detach().clone()


def _remember(cell: nn.Module, keys: object) -> None:
    """Take what was loaded as the point from which the next step starts."""
    assert isinstance(cell, FullCapacityURNNCell)
    with torch.no_grad():
        cell.previous = cell.unitary.detach().clone()
