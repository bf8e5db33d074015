"""Unitary recurrent matrices: uRNN, EURNN and full-capacity uRNN, h' = modReLU(W h + V x).

The matrix of uRNN (Arjovsky, Shah and Bengio, 2016) is a product of fast transforms, that of EURNN
(Jing et al., 2017) of layers of plane rotations; full-capacity uRNN (Wisdom et al., 2016) reaches
every unitary matrix by multiplicative updates. Complex numbers are pairs of real ones, stored as
(real | imaginary) in parameters, states and outputs, so that every optimiser, file format and
readout can process them. State and output are therefore twice as wide as the hidden size.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Operator, Step, operators, steps
from undamped.kernels.shared.threads import single_threaded_if_small
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell, modrelu
from undamped.nn.bases.updates import UpdateCounter, values_readable
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.cayley import Riemannian
from undamped.parametrizations.matrix_set import isometry_defect, nearest_isometry
from undamped.parametrizations.transforms import (
    FourierUnitary,
    Givens,
    GivensStyle,
    real_form,
    to_complex,
    to_pair,
)


def complex_modrelu(pair: Tensor, bias: Tensor, softening: float) -> Tensor:
    """Return z relu(|z| + b)/(|z| + ε) of complex z, stored as (real | imaginary)."""
    values = to_complex(pair)
    modulus = values.abs()
    return to_pair(values * (torch.relu(modulus + bias) / (modulus + softening)))


class UnitaryCell(CoupledCell):
    """h' = modReLU(W h + V x), W unitary, h complex.

    Promise:
        W preserves every norm before, during and after training.

    Args:
        hidden_size: Number of complex units; outputs are twice as wide.
    """

    promises = (Promise(Kind.ISOMETRIC, "W is unitary, trained or not"),)
    costly_constants = True
    needs_full_precision = True
    softening: ClassVar[float] = 1e-5
    """The number ε in z relu(|z| + b)/(|z| + ε)."""
    structured: bool = True
    """Whether a product may use the structure of W; if not, W is always formed."""
    learns_start: ClassVar[bool] = True
    """Whether the initial state is trained."""

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = nn.Parameter(torch.empty(2 * hidden_size, input_size))
        bound = (6 / (input_size + hidden_size)) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        self.bias = nn.Parameter(torch.empty(hidden_size).uniform_(-0.01, 0.01))
        if self.learns_start:
            start = (1.5 / hidden_size) ** 0.5
            self.start = nn.Parameter(torch.empty(2 * hidden_size).uniform_(-start, start))

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        return (self.output_size,)

    @property
    def output_size(self) -> int:
        return 2 * self.hidden_size

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Return the trained initial state, or zeros if it is not trained."""
        if self.learns_start:
            return (self.start.to(like).expand(batch, -1),)
        return super().initial_state(batch, like)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """Return the complex matrix W."""

    def constants(self) -> State:
        """Return W as a real matrix of twice the size."""
        return (real_form(self.recurrent_matrix()),)

    def input_tensors(self) -> State:
        return (self.input_weight,)

    def threshold(self) -> Tensor:
        """Return the number b of modReLU."""
        return self.bias

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        total = projected + self.product(state, constants)
        return (complex_modrelu(total, self.threshold(), self.softening),)

    def elementwise(self) -> Step:
        return steps.ComplexModRelu(self.softening)

    def elementwise_tensors(self, constants: State) -> State:
        return (self.threshold(),)


class TransformCell(UnitaryCell):
    """A unitary cell whose W is a product of transforms, formed only if that is faster."""

    maps: Any
    """The transforms, a `TransformSet`."""
    free: nn.Parameter

    @property
    @abstractmethod
    def _forms_matrix(self) -> bool:
        """Whether W is formed, and not applied by its transforms."""

    @abstractmethod
    def _transforms(self) -> tuple[Tensor, Operator]:
        """Return the numbers of the transforms, and the operator that applies them."""

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the free numbers of W."""
        return [self.free]

    def recurrent_matrix(self) -> Tensor:
        return self.maps(self.free)

    def constants(self) -> State:
        """Return W as a real matrix, or the numbers of its transforms."""
        if not self._forms_matrix:
            return (self._transforms()[0],)
        matrix = self.recurrent_matrix()
        return (real_form(matrix) if matrix.is_complex() else matrix,)

    def product(self, state: State, constants: State) -> Tensor:
        if self._forms_matrix:
            return super().product(state, constants)
        if not self.maps.unitary:
            return self.maps.transform(self.free, state[0])
        return to_pair(self.maps.transform(self.free, to_complex(state[0])))

    def operator(self) -> Operator:
        return super().operator() if self._forms_matrix else self._transforms()[1]


class URNNCell(TransformCell):
    """uRNN: complex states, and a unitary matrix of 7n numbers applied in O(n log n).

    Equation:
        h' = modReLU(W h + V x),  W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁

    Symbols:
        h complex hidden state, stored as (real | imaginary); x input, V complex input matrix, D
        diagonal phases, R reflections, F Fourier transform, Π a fixed permutation; modReLU(z) =
        z relu(|z| + b)/(|z| + 1e-5). The initial state is trained. Phases, reflections and initial
        state are drawn as in the paper; b within ±0.01 as in the authors' program (0 in the paper).

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

    def _transforms(self) -> tuple[Tensor, Operator]:
        return self.free, operators.Fourier(self.maps.permutation)


class EURNNCell(TransformCell):
    """EURNN: layers of rotations in disjoint planes, O(layers · n), with tunable capacity.

    Equation:
        h' = modReLU(W h + V x),  W = D F_L … F_1
        F: y_p = cos α h_p − e^{iφ} sin α h_q,  y_q = sin α h_p + e^{iφ} cos α h_q

    Symbols:
        h complex hidden state, stored as (real | imaginary); x input, V input matrix, α and φ
        trained angles of each pair (p, q), D diagonal phases; modReLU(z) = z relu(m + b)/m with
        m = |z| + 0.01. For real states modReLU(z) = sign(z) relu(|z| + b), with an initial b 0.01
        higher: the same function. V is initially within ±0.01.

    Args:
        hidden_size: Number of units; outputs are twice as wide if they are complex.
        capacity: The number L of layers; by default 2 for "tunable" and log₂ of the size for "fft".
        style: Which coordinates are paired: adjacent ones, or those 1, 2, 4, … apart.
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
    """A layer costs about as much as a dense product with so many rows (measured at 128 and 1024
    units); W is formed where that is faster."""

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
            # In the authors' program modReLU of real z is sign(z) relu(|z| + 0.01 + b).
            self.bias.data += self.softening

    @property
    def output_size(self) -> int:
        return (2 if self.unitary else 1) * self.hidden_size

    @property
    def _forms_matrix(self) -> bool:
        return self.layer_cost * self.maps.layers >= self.hidden_size or not self.structured

    def _transforms(self) -> tuple[Tensor, Operator]:
        layers = operators.Layers(self.maps.partners(), self.unitary)
        return self.maps.coefficients(self.free), layers

    def threshold(self) -> Tensor:
        """Return b, with the shift that makes modReLU the identity at b = 0."""
        return self.bias + self.softening if self.unitary else self.bias

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        if self.unitary:
            return super().advance(projected, state, constants)
        return (modrelu(projected + self.product(state, constants), self.bias),)

    def elementwise(self) -> Step:
        """Return the kernel of modReLU, complex or real."""
        if self.unitary:
            return super().elementwise()
        return steps.ModRelu()


class FullCapacityURNNCell(UpdateCounter, UnitaryCell):
    """Full-capacity uRNN: W is any unitary matrix, and its updates are unitary too.

    Equation:
        h' = modReLU(W h + V x)
        after an update: A = G Wᴴ − W Gᴴ,  W ← (I + A/2)⁻¹ (I − A/2) W

    Symbols:
        h complex hidden state, stored as (real | imaginary); x input, V complex input matrix, −G
        the step that the optimiser proposed, with its learning rate and normalisation.

    Promise:
        W preserves every norm before, during and after training, up to rounding between two
        projections. Any optimiser of torch.optim may train it, in any loop.

    Args:
        project_every: Number of updates after which W is projected to the set, against rounding.

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
        self._warned = False
        self.count_updates()

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return W."""
        return [self.unitary]

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        return [self.unitary]

    def recurrent_matrix(self) -> Tensor:
        return self.maps(self.unitary)

    def constants(self) -> State:
        if not self._warned:
            self._check_updates()
        return super().constants()

    def before_update(self) -> None:
        self._previous = self.unitary.detach().clone()

    def after_update(self) -> None:
        """Replace the optimiser's step by the one along the unitary matrices."""
        previous, self._previous = self._previous, None
        if previous is not None and not torch.equal(previous, self.unitary):
            project = (int(self.updates) + 1) % self.project_every == 0
            with single_threaded_if_small(self.hidden_size**3):
                self.maps.settle(self.unitary, previous, project=project)
        if self.updating:  # by an optimiser that contains the finished one
            self._previous = self.unitary.detach().clone()

    @torch.no_grad()
    def make_unitary(self) -> None:
        """Replace W by the nearest unitary matrix, after something but an optimiser changed it."""
        nearest = nearest_isometry(self.recurrent_matrix().to(torch.complex128))
        self.unitary.copy_(torch.stack([nearest.real, nearest.imag]))

    def _check_updates(self) -> None:
        if self.updating or not values_readable(self.unitary):
            return
        defect = float(isometry_defect(self.recurrent_matrix().detach()))
        if not defect <= 1e-2 * self.hidden_size**0.5:
            self._warned = True
            warnings.warn(
                f"W of full-capacity-urnn is not unitary: ‖WᴴW − I‖ = {defect:.2g}. Something "
                "other than an optimiser of torch.optim, such as weight averaging, changes W; call "
                "`cell.make_unitary()` after each of its updates.",
                stacklevel=2,
            )


class uRNN(Recurrent, cell=URNNCell, name="urnn"): ...


class EURNN(Recurrent, cell=EURNNCell, name="eurnn"): ...


class FullCapacityURNN(Recurrent, cell=FullCapacityURNNCell, name="full-capacity-urnn"): ...
