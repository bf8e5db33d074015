"""Recurrent matrices that stay orthogonal: expRNN, scoRNN, oRNN and GORU.

expRNN (Lezcano-Casado and Martínez-Rubio, 2019) uses the exponential map, scoRNN (Helfrich et al.,
2018) the scaled Cayley transform, and oRNN (Mhammedi et al., 2017) Householder reflections. GORU
(Jing et al., 2019) is a gated unit around an orthogonal matrix.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.torch_internals import parametrizations_of
from undamped.kernels.coupled import Operator, Step, operators, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import Activation, CoupledCell, activate, activation_kernel, modrelu
from undamped.nn.bases.updates import UpdateCounter
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.cayley import ScaledCayley
from undamped.parametrizations.exponential import Exponential
from undamped.parametrizations.householder import Householder, reflection_factors
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start
from undamped.parametrizations.matrix_set import MatrixSet

GRADIENT = Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step")


class IsometricCell(CoupledCell):
    """h' = φ(W h + V x) with a constrained matrix W, which is computed once per pass.

    Args:
        nonlinearity: The function φ.
        initialisation: How the initial orthogonal matrix is drawn.
    """

    costly_constants = True
    needs_full_precision = True
    margin: float = 0.0
    """Largest distance of the singular values of W from one."""

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, nonlinearity: Activation
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.nonlinearity: Activation = nonlinearity
        self.thresholds = nonlinearity == "modrelu"
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        nn.init.kaiming_normal_(self.input_weight, nonlinearity="relu")
        if self.thresholds:
            nn.init.uniform_(self.bias, -0.01, 0.01)
        else:
            nn.init.zeros_(self.bias)

    def constrain(self, start: Tensor, matrix_set: MatrixSet) -> None:
        """Constrain `weight_hh` to a set, with an initial value in it."""
        self.weight_hh = nn.Parameter(start)
        parametrize.register_parametrization(self, "weight_hh", matrix_set)

    @property
    def matrix_set(self) -> MatrixSet:
        """The set to which `weight_hh` is constrained."""
        parametrization = self.parametrizations["weight_hh"][0]  # type: ignore[index]
        assert isinstance(parametrization, MatrixSet)
        return parametrization

    def free_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of `weight_hh`, in the order of the set."""
        return list(self.parametrizations["weight_hh"].parameters())  # type: ignore[index]

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that have the second learning rate in training."""
        return self.free_parameters()

    def recurrent_matrix(self) -> Tensor:
        """Return W."""
        return self.constants()[0]

    def _constants_source(self) -> nn.Module:
        """Return the module with the parameters and the set of `weight_hh`, if there is a set."""
        return parametrizations_of(self) or self

    def input_tensors(self) -> State:
        return (self.input_weight,) if self.thresholds else (self.input_weight, self.bias)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        total = projected + self.product(state, constants)
        bias = self.bias if self.thresholds else torch.zeros_like(self.bias)
        return (activate(self.nonlinearity, total, bias),)

    def elementwise(self) -> Step:
        return activation_kernel(self.nonlinearity)

    def elementwise_tensors(self, constants: State) -> State:
        return (self.bias,) if self.thresholds else ()

    def step_gradient_bound(self) -> Tensor:
        """Return the largest singular value of W: φ has slopes between 0 and 1."""
        return torch.tensor(1.0 + self.margin)


class ExpRNNCell(UpdateCounter, IsometricCell):
    """expRNN: the recurrent matrix is the exponential of a skew matrix, which is a rotation.

    Equation:
        h' = φ(W h + V x),  W = B exp(A),  A = −Aᵀ

    Symbols:
        h hidden state, x input, V input matrix, φ modReLU with a trained threshold, A trained,
        B the base point: the identity, or moved to W every K updates while A restarts at zero
        (dynamic trivialisation).

    Promise:
        W preserves every norm before, during and after training.

    Args:
        rebase_every: The number K of optimiser steps between two moves of B; 0 never moves it
            (expRNN), the paper on trivialisations uses 100.
        project_every: Number of moves after which B is projected to the set, against rounding; the
            authors use 100, and 30 for the copy task.

    Example:
        >>> net = undamped.nn.expRNN(3, 16, initialisation="cayley")
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        M. Lezcano-Casado, D. Martínez-Rubio. Cheap orthogonal constraints in neural networks: a
        simple parametrization of the orthogonal and unitary group. ICML, 2019.
    """

    promises = (Promise(Kind.ISOMETRIC, "W is a rotation, trained or not"), GRADIENT)

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
        return self.free_parameters()

    def after_outer_update(self) -> None:
        """Move the base point every K updates."""
        super().after_outer_update()
        moves, rest = divmod(int(self.updates), self.rebase_every)
        if not rest:
            matrix_set, (free,) = self.matrix_set, self.free_parameters()
            assert isinstance(matrix_set, Exponential)
            matrix_set.rebase(free, project=moves % self.project_every == 0)


class ScoRNNCell(IsometricCell):
    """scoRNN: W = (I + A)⁻¹(I − A)D with A skew and fixed signs D, orthogonal for every A.

    Equation:
        h' = φ(W h + V x),  W = (I + A)⁻¹ (I − A) D

    Symbols:
        h hidden state, x input, V input matrix (initially within ±0.01), φ modReLU with a trained
        threshold (initially 0), A trained and skew, D = diag(±1) fixed, the last `negative`
        entries −1.

    Promise:
        W preserves every norm before, during and after training.

    Args:
        negative: Number of entries of D that are −1, tuned by task in the paper; by default half of
            them, its choice for the copy task.

    Example:
        >>> net = undamped.nn.scoRNN(3, 16, negative=4)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        K. Helfrich, D. Willmott, Q. Ye. Orthogonal recurrent neural networks with scaled Cayley
        transform. ICML, 2018.
    """

    promises = (Promise(Kind.ISOMETRIC, "W is orthogonal, trained or not"), GRADIENT)

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


class ORNNCell(IsometricCell):
    """oRNN: the recurrent matrix is a product of m reflections, applied in O(mn).

    Equation:
        h' = φ(W h + V x + b),  W = H₁ … H_m,  H_i = I − 2 v_i v_iᵀ/‖v_i‖²

    Symbols:
        h hidden state, x input, V input matrix, b bias, v_i trained vectors of which the first
        i − 1 entries are zero, φ leaky relu (slope 0.1).

    Promise:
        W preserves every norm before, during and after training. m trades capacity for speed: W is
        the identity on n − m directions, where inputs of different times are summed and their order
        is lost. So d inputs reach at most d + m directions of the state, for any length. The copy
        task (ten symbols, one-hot in ten features) needs 100: 128 units with 16 reflections reach
        26 and cannot learn it, with 90 or more all 100.

    Args:
        reflections: The number m; by default 16, or the hidden size if it is smaller.

    Example:
        >>> net = undamped.nn.oRNN(3, 64, reflections=8)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        Z. Mhammedi, A. Hellicar, A. Rahman, J. Bailey. Efficient orthogonal parametrisation of
        recurrent neural networks using Householder reflections. ICML, 2017.
    """

    promises = (Promise(Kind.ISOMETRIC, "W is orthogonal, trained or not"), GRADIENT)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Activation = "leaky-relu",
        reflections: PositiveInt | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        count = min(16, hidden_size) if reflections is None else reflections
        maps = Householder(hidden_size, count)
        self.reflections = maps.reflections
        self.vectors = nn.Parameter(maps.sample_vectors().to(self.bias))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        return [self.vectors]

    def constants(self) -> State:
        """Return the factors A and B of W = I − BᵀAᵀ; for rows, h → h − (h A) B."""
        unit, rest = reflection_factors(self.vectors)
        return rest.mT.contiguous(), unit.mT.contiguous()

    def product(self, state: State, constants: State) -> Tensor:
        """Return W h, in O(mn)."""
        down, up = constants
        return state[0] - (state[0] @ down) @ up

    def linear_tensors(self, constants: State) -> State:
        return constants

    def operator(self) -> Operator:
        return operators.LowRank()

    def recurrent_matrix(self) -> Tensor:
        down, up = self.constants()
        return (torch.eye(self.hidden_size).to(down) - down @ up).mT


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
        return (torch.cat([self.gate_weight, self.orthogonal]),)

    def input_tensors(self) -> State:
        return self.input_weight, torch.cat([self.gate_bias, torch.zeros_like(self.bias)])

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Compute gates and candidate, and mix it with the state."""
        reset, update, rotated = self.product(state, constants).chunk(3, dim=-1)
        reset_x, update_x, x = projected.chunk(3, dim=-1)
        u = torch.sigmoid(update + update_x)
        candidate = modrelu(x + torch.sigmoid(reset + reset_x) * rotated, self.bias)
        return (u * state[0] + (1 - u) * candidate,)

    def elementwise_tensors(self, constants: State) -> State:
        return (self.bias,)


class expRNN(Recurrent, cell=ExpRNNCell, name="exprnn"): ...


class scoRNN(Recurrent, cell=ScoRNNCell, name="scornn"): ...


class oRNN(Recurrent, cell=ORNNCell, name="ornn"): ...


class GORU(Recurrent, cell=GORUCell, name="goru"): ...
