"""uRNN (Arjovsky, Shah and Bengio, 2016): a unitary matrix made of fast transforms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Operator, operators
from undamped.nn.bases.cell import State
from undamped.nn.bases.unitary import UnitaryCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.complex_pair import to_complex, to_pair
from undamped.parametrizations.fourier_unitary import FourierUnitary


class URNNCell(UnitaryCell):
    """uRNN: complex states, and a unitary matrix of 7n numbers applied in O(n log n).

    Equation:
        h' = modReLU(W h + V x),  W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁

    Symbols:
        h complex hidden state, kept as (real | imaginary); x input, V complex input matrix, D
        diagonal phases, R reflections, F Fourier transform, Π a fixed permutation; modReLU(z) =
        z relu(|z| + b)/(|z| + 1e-5). The first state is trained. Phases, reflections and first
        state start as in the paper; b within ±0.01 as in the authors' program (in the paper at 0).

    Promise:
        W keeps every norm before, during and after training.

    Args:
        hidden_size: Number of complex units; outputs are twice as wide.

    Example:
        >>> net = undamped.nn.uRNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))
        >>> output.shape
        torch.Size([50, 4, 32])

    Reference:
        M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural networks. ICML, 2016.
    """

    dense_up_to: ClassVar[int] = 256
    """Up to this size one dense product is faster than the transforms."""

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        self.maps = FourierUnitary(hidden_size)
        self.free = nn.Parameter(self.maps.sample_free())

    @property
    def _forms_matrix(self) -> bool:
        return self.hidden_size <= self.dense_up_to or not self.structured

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Phases and reflections."""
        return [self.free]

    def recurrent_matrix(self) -> Tensor:
        """W, formed."""
        return self.maps(self.free)

    def constants(self) -> State:
        """The matrix where it is small, the free numbers otherwise."""
        return super().constants() if self._forms_matrix else (self.free,)

    def product(self, state: State, constants: State) -> Tensor:
        """W h, by transforms where W is not formed."""
        if self._forms_matrix:
            return super().product(state, constants)
        return to_pair(self.maps.transform(constants[0], to_complex(state[0])))

    def operator(self) -> Operator:
        """A dense product, or the transforms."""
        if self._forms_matrix:
            return super().operator()
        return operators.Fourier(self.maps.permutation)


@models.register("urnn")
class uRNN(Recurrent):
    """Stacked layers of `URNNCell`, which has the equation and the options."""

    cell_class = URNNCell
