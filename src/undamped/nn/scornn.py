"""scoRNN (Helfrich, Willmott and Ye, 2018): orthogonal by the scaled Cayley transform."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.bases.activations import Activation
from undamped.nn.bases.isometric import IsometricCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.cayley import ScaledCayley
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start


class ScoRNNCell(IsometricCell):
    """scoRNN: W = (I + A)⁻¹(I − A)D with A skew and fixed signs D, orthogonal for every A.

    Equation:
        h' = φ(W h + V x),  W = (I + A)⁻¹ (I − A) D

    Symbols:
        h hidden state, x input, V input matrix (it starts within ±0.01), φ modReLU with a trained
        threshold (it starts at 0), A trained and skew, D = diag(±1) fixed, the last `negative`
        entries −1.

    Promise:
        W keeps every norm before, during and after training.

    Args:
        nonlinearity: The function φ; the paper's is modReLU.
        initialisation: Where (I + A)⁻¹(I − A) starts.
        negative: How many entries of D are −1, tuned by task in the paper; half of them (its
            choice for the copy task) if none is given.

    Example:
        >>> net = undamped.nn.scoRNN(3, 16, negative=4)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        K. Helfrich, D. Willmott, Q. Ye. Orthogonal recurrent neural networks with scaled Cayley
        transform. ICML, 2018.
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
        nonlinearity: Activation = "modrelu",
        initialisation: OrthogonalStart = "cayley",
        negative: NonNegativeInt | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        negative = hidden_size // 2 if negative is None else negative
        if negative > hidden_size:
            raise OptionError(
                f"negative must be at most hidden_size={hidden_size}, got {negative}."
            )
        nn.init.uniform_(self.input_weight, -0.01, 0.01)
        nn.init.zeros_(self.bias)
        matrix_set = ScaledCayley(hidden_size, negative)
        start = orthogonal_start(initialisation, hidden_size) * matrix_set.signs
        self.constrain(start, matrix_set)

    def step_gradient_bound(self) -> Tensor:
        """One: W is orthogonal, and φ has slopes between 0 and 1."""
        return torch.tensor(1.0)


@models.register("scornn")
class scoRNN(Recurrent):
    """Stacked layers of `ScoRNNCell`, which has the equation and the options."""

    cell_class = ScoRNNCell
