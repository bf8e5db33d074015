"""expRNN (Lezcano-Casado and Martínez-Rubio, 2019): a rotation kept by the exponential map."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.bases.activations import Activation
from undamped.nn.bases.isometric import IsometricCell
from undamped.nn.bases.updates import UpdateCounter
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.exponential import Exponential
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start


class ExpRNNCell(UpdateCounter, IsometricCell):
    """expRNN: the recurrent matrix is the exponential of a skew one, so it is always a rotation.

    Equation:
        h' = φ(W h + V x),  W = B exp(A),  A = −Aᵀ

    Symbols:
        h hidden state, x input, V input matrix, φ modReLU with a trained threshold, A trained,
        B the base point: the identity for good, or moved to W every K updates while A starts
        again at zero (dynamic trivialisation).

    Promise:
        W keeps every norm before, during and after training.

    Args:
        nonlinearity: The function φ; the paper's is modReLU.
        initialisation: Where W starts.
        rebase_every: The number K of optimiser steps between two moves of B; 0 never moves it
            (expRNN), the paper on trivialisations uses 100.
        project_every: After how many moves B is put back on the set against rounding; the
            authors have 100, and 30 for the copy task.

    Example:
        >>> net = undamped.nn.expRNN(3, 16, initialisation="cayley")
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        M. Lezcano-Casado, D. Martínez-Rubio. Cheap orthogonal constraints in neural networks: a
        simple parametrization of the orthogonal and unitary group. ICML, 2019.
    """

    promises = (
        Promise(Kind.ISOMETRIC, "W is a rotation, trained or not"),
        Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),
    )

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Activation = "modrelu",
        initialisation: OrthogonalStart = "henaff",
        rebase_every: NonNegativeInt = 0,
        project_every: PositiveInt = 100,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        self.rebase_every, self.project_every = rebase_every, project_every
        self.constrain(orthogonal_start(initialisation, hidden_size), Exponential(hidden_size))
        if rebase_every:
            self.count_updates()

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        """A."""
        return self.free_parameters()

    def after_outer_update(self) -> None:
        """Move the base point where it is time to."""
        super().after_outer_update()
        moves, rest = divmod(int(self.updates), self.rebase_every)
        if not rest:
            matrix_set, (free,) = self.matrix_set, self.free_parameters()
            assert isinstance(matrix_set, Exponential)
            matrix_set.rebase(free, project=moves % self.project_every == 0)

    def step_gradient_bound(self) -> Tensor:
        """One: W is a rotation, and φ has slopes between 0 and 1."""
        return torch.tensor(1.0)


@models.register("exprnn")
class expRNN(Recurrent):
    """Stacked layers of `ExpRNNCell`, which has the equation and the options."""

    cell_class = ExpRNNCell
