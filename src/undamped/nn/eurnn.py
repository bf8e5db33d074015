"""EURNN (Jing et al., 2017): a unitary matrix made of layers of plane rotations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Operator, Step, operators, steps
from undamped.nn.bases.activations import modrelu
from undamped.nn.bases.cell import State
from undamped.nn.bases.unitary import UnitaryCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.complex_pair import real_form, to_complex, to_pair
from undamped.parametrizations.givens import Givens, GivensStyle


class EURNNCell(UnitaryCell):
    """EURNN: layers of rotations in disjoint planes, O(layers · n), from few to full capacity.

    Equation:
        h' = modReLU(W h + V x),  W = D F_L … F_1
        F: y_p = cos α h_p − e^{iφ} sin α h_q,  y_q = sin α h_p + e^{iφ} cos α h_q

    Symbols:
        h complex hidden state, kept as (real | imaginary); x input, V input matrix, α and φ
        trained angles of each pair (p, q), D diagonal phases; modReLU(z) = z relu(m + b)/m with
        m = |z| + 0.01. For real states modReLU(z) = sign(z) relu(|z| + b), with b starting 0.01
        higher: the same function. V starts within ±0.01.

    Promise:
        W keeps every norm before, during and after training.

    Args:
        hidden_size: Number of units; outputs are twice as wide if they are complex.
        capacity: The number L of layers; 2 for "tunable" and log₂ of the size for "fft" if none
            is given.
        style: Which coordinates are paired: neighbours, or those 1, 2, 4, … apart.
        unitary: Whether states are complex; if not, W is a real rotation.

    Example:
        >>> net = undamped.nn.EURNN(3, 16, capacity=4)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        L. Jing, Y. Shen, T. Dubček, J. Peurifoy, S. Skirlo, Y. LeCun, M. Tegmark, M. Soljačić.
        Tunable efficient unitary neural networks (EUNN) and their application to RNNs. ICML, 2017.
    """

    softening = 0.01
    learns_start = False
    layer_cost: ClassVar[int] = 64
    """A layer costs about as much as a dense product with so many rows (measured at 128 and
    1024 units): below that the matrix is formed."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        capacity: PositiveInt | None = None,
        style: GivensStyle = "tunable",
        unitary: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.maps = Givens(hidden_size, capacity, style, unitary=unitary)
        self.unitary = unitary
        self.free = nn.Parameter(self.maps.sample_free())
        nn.init.uniform_(self.input_weight, -0.01, 0.01)
        if not unitary:
            self.input_weight = nn.Parameter(self.input_weight.detach()[:hidden_size].clone())
            # The authors' real modReLU is sign(z) relu(|z| + 0.01 + b): here the shift is in b.
            self.bias.data += self.softening

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """Real and imaginary parts of complex states."""
        return (self.output_size,)

    @property
    def output_size(self) -> int:
        """Real and imaginary parts of complex states."""
        return (2 if self.unitary else 1) * self.hidden_size

    @property
    def _forms_matrix(self) -> bool:
        return self.layer_cost * self.maps.layers >= self.hidden_size or not self.structured

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """The angles."""
        return [self.free]

    def recurrent_matrix(self) -> Tensor:
        """W, formed."""
        return self.maps(self.free)

    def constants(self) -> State:
        """The matrix where layers are many, their coefficients otherwise."""
        if not self._forms_matrix:
            return (self.maps.coefficients(self.free),)
        matrix = self.recurrent_matrix()
        return (real_form(matrix) if self.unitary else matrix,)

    def product(self, state: State, constants: State) -> Tensor:
        """W h, by layers where W is not formed."""
        if self._forms_matrix:
            return super().product(state, constants)
        if not self.unitary:
            return self.maps.transform(self.free, state[0])
        return to_pair(self.maps.transform(self.free, to_complex(state[0])))

    def threshold(self) -> Tensor:
        """b, with the shift that makes modReLU the identity at b = 0."""
        return self.bias + self.softening if self.unitary else self.bias

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """modReLU(W h + V x)."""
        if self.unitary:
            return super().advance(projected, state, constants)
        return (modrelu(projected + self.product(state, constants), self.bias),)

    def elementwise(self) -> Step:
        """The kernel of modReLU, complex or real."""
        if self.unitary:
            return super().elementwise()
        return steps.ModRelu()

    def operator(self) -> Operator:
        """A dense product, or the layers."""
        if self._forms_matrix:
            return super().operator()
        return operators.Layers(self.maps.partners(), self.unitary)


@models.register("eurnn")
class EURNN(Recurrent):
    """Stacked layers of `EURNNCell`, which has the equation and the options."""

    cell_class = EURNNCell
