"""Full-capacity uRNN (Wisdom et al., 2016): any unitary matrix, updated multiplicatively."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.kernels.shared.threads import single_threaded_if_small
from undamped.nn.bases.cell import State
from undamped.nn.bases.unitary import UnitaryCell
from undamped.nn.bases.updates import UpdateCounter, values_readable
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.matrix_set import isometry_defect, nearest_isometry
from undamped.parametrizations.riemannian import Riemannian


class FullCapacityURNNCell(UpdateCounter, UnitaryCell):
    """Full-capacity uRNN: W is any unitary matrix, moved along the unitary matrices.

    Equation:
        h' = modReLU(W h + V x)
        after an update: A = G Wᴴ − W Gᴴ,  W ← (I + A/2)⁻¹ (I − A/2) W

    Symbols:
        h complex hidden state, kept as (real | imaginary); x input, V complex input matrix, −G
        the step that the optimiser proposed (with its learning rate and normalisation inside).

    Promise:
        W keeps every norm before, during and after training; between two projections only
        rounding moves it off. Any optimiser of torch.optim may train it, in any loop.

    Args:
        hidden_size: Number of complex units; outputs are twice as wide.
        project_every: After how many updates W is put back on the set against rounding.

    Example:
        >>> net = undamped.nn.FullCapacityURNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        S. Wisdom, T. Powers, J. Hershey, J. Le Roux, L. Atlas. Full-capacity unitary recurrent
        neural networks. NeurIPS, 2016.
    """

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, *, project_every: PositiveInt = 100
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.project_every = project_every
        self.maps = Riemannian(hidden_size)
        start = self.maps.right_inverse(self.maps.sample())
        self.unitary = nn.Parameter(start.to(self.bias))
        self._previous: Tensor | None = None
        self._told = False
        self.count_updates()

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """W itself."""
        return [self.unitary]

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        """W itself."""
        return [self.unitary]

    def recurrent_matrix(self) -> Tensor:
        """W."""
        return self.maps(self.unitary)

    def constants(self) -> State:
        """W as a real matrix of twice the size."""
        if not self._told:
            self._notice_strange_updates()
        return super().constants()

    def before_update(self) -> None:
        """Keep W."""
        self._previous = self.unitary.detach().clone()

    def after_update(self) -> None:
        """Replace the optimiser's step by the one along the unitary matrices."""
        previous, self._previous = self._previous, None
        if previous is not None and not torch.equal(previous, self.unitary):
            project = (int(self.updates) + 1) % self.project_every == 0
            with single_threaded_if_small(self.hidden_size**3):
                self.maps.settle(self.unitary, previous, project=project)
        if self.updating:  # by an optimiser around the one that is done
            self._previous = self.unitary.detach().clone()

    @torch.no_grad()
    def make_unitary(self) -> None:
        """Put W on the nearest unitary matrix, after something other than an optimiser moved it."""
        nearest = nearest_isometry(self.recurrent_matrix().to(torch.complex128))
        self.unitary.copy_(torch.stack([nearest.real, nearest.imag]))

    def _notice_strange_updates(self) -> None:
        if self.updating or not values_readable(self.unitary):
            return
        defect = float(isometry_defect(self.recurrent_matrix().detach()))
        if not defect <= 1e-2 * self.hidden_size**0.5:
            self._told = True
            warnings.warn(
                f"W of full-capacity-urnn is not unitary: ‖WᴴW − I‖ = {defect:.2g}. Something "
                "other than an optimiser of torch.optim changes W, "
                "averages of weights among them; call `cell.make_unitary()` after each of its "
                "updates.",
                stacklevel=2,
            )


@models.register("full-capacity-urnn")
class FullCapacityURNN(Recurrent):
    """Stacked layers of `FullCapacityURNNCell`, which has the equation and the options."""

    cell_class = FullCapacityURNNCell
