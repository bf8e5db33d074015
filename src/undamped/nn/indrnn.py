"""IndRNN (Li et al., 2018, 2019): independent units, plain, residual and densely connected."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.indrnn.layer import independent_layer
from undamped.nn.bases.cell import Cell, ScanResult, State
from undamped.nn.bases.updates import UpdateHooks, values_readable
from undamped.nn.recurrent import Recurrent

LongMemory = Literal["last", "all", "none"]
Form = Literal["sums", "blocks"]


class IndRNNCell(UpdateHooks, Cell):
    """IndRNN: each unit reads only its own past; layers above mix the units.

    Equation:
        h' = relu(w ⊙ h + V x + b),  |w| ≤ g^(1/T)

    Symbols:
        h hidden state, x input, w recurrent weight per unit, V input matrix, b bias, T length of
        the sequences, g largest growth of a signal over T steps.

    Promise:
        ‖∂h'/∂h‖ ≤ g^(1/T) at every step, so at most g over a sequence: w is clamped after every
        step of an optimiser.

    Args:
        gain: The number g.
        steps: The number T.
        long_memory: Which layers have all initial w near the limit; the others are uniform from
            zero to it. The paper uses the last.
        normalise: Whether inputs of layers above the first have mean 0 and variance 1 over features
            at each step. It replaces the authors' batch normalisation, with which an output would
            depend on padding, on the other sequences and on the future.

    Example:
        >>> net = undamped.nn.IndRNN(3, 16, num_layers=2, steps=50)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        S. Li, W. Li, C. Cook, C. Zhu, Y. Gao. Independently recurrent neural network (IndRNN):
        building a longer and deeper RNN. CVPR, 2018. Residual and dense networks: S. Li, W. Li, C.
        Cook, Y. Gao. Deep independently recurrent neural network (IndRNN). arXiv:1910.06251, 2019.
    """

    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ g^(1/T) at every step"),)
    independent_units = True
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        gain: PositiveFloat = 2.0,
        steps: PositiveInt = 1000,
        long_memory: LongMemory = "last",
        normalise: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.normalise = normalise
        self.limit = gain ** (1 / steps)
        low = min(0.5 ** (1 / steps), self.limit) if long_memory != "none" else 0.0
        self.weight = nn.Parameter(torch.empty(hidden_size).uniform_(low, self.limit))
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        nn.init.kaiming_uniform_(self.input_weight, a=8)
        self._warned = False
        self.add_update_hooks()

    @classmethod
    def layer_options(cls, options: Mapping[str, Any], layer: int, layers: int) -> dict[str, Any]:
        """Return the options of a layer; the first never normalises."""
        changed = dict(options)
        if layer == 1:
            changed["normalise"] = False
        if changed.get("long_memory", "last") == "last" and layer < layers:
            changed["long_memory"] = "none"
        return changed

    def read(self, x: Tensor) -> Tensor:
        """Return the input of the matrix V."""
        return F.layer_norm(x, x.shape[-1:]) if self.normalise else x

    def project(self, x: Tensor) -> Tensor:
        return F.linear(self.read(x), self.input_weight, self.bias)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        return (torch.relu(self.weight * state[0] + projected),)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan in the kernel for independent units."""
        if self.training and torch.is_grad_enabled() and not self._warned:
            self._check_updates()
        weights = self.input_weight, self.bias, self.weight
        output, final = independent_layer(self.read(x), *weights, state[0], lengths=lengths)
        return output, (final,)

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        return [self.weight]

    def after_update(self) -> None:
        self.clamp()

    @torch.no_grad()
    def clamp(self) -> None:
        """Clamp the recurrent weights, after something other than an optimiser changed them."""
        self.weight.clamp_(-self.limit, self.limit)

    def _check_updates(self) -> None:
        if self.updating or not values_readable(self.weight):
            return
        largest = float(self.weight.detach().abs().max())
        if not largest <= self.limit * (1 + 2 * torch.finfo(self.weight.dtype).eps):
            self._warned = True
            warnings.warn(
                f"Recurrent weights of {type(self).__name__} must be at most {self.limit:.6g}, "
                f"got {largest:.6g}. Something other than an optimiser of torch.optim changes "
                "them; call `cell.clamp()` after each of its updates.",
                stacklevel=2,
            )

    def step_gradient_bound(self) -> Tensor:
        """Return g^(1/T), the bound of |w|."""
        return torch.tensor(self.limit)


class ResidualIndRNNCell(IndRNNCell):
    """Residual IndRNN: layers read the sum of the layer below and of every S-th layer before it.

    Equation:
        h' = relu(w ⊙ h + V u + b),  u^ℓ = y^(ℓ−1) + y^(ℓ−1−S) + y^(ℓ−1−2S) + …

    Symbols:
        As in indrnn; ℓ counts layers from 1, u¹ is the input of the network, y outputs of layers.
        With form="blocks" only layers 2, 2 + S, 2 + 2S, … read the sum and the others the layer
        below: blocks x + F_S(… F₁(x)) between a first and a last layer; the authors use S = 2.

    Promise:
        As indrnn in time; in depth gradients pass through the sum unchanged.

    Args:
        input_size: Number of features of the input at each step; of all sources together.
        skip: The number S of layers between two terms of the sum.
        form: Whether every layer reads a sum (sums), or the first of every S (blocks).

    Example:
        >>> net = undamped.nn.ResidualIndRNN(3, 16, num_layers=6, steps=50)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    independent_units = False  # a layer reads several earlier ones, a block only one

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        gain: PositiveFloat = 2.0,
        steps: PositiveInt = 1000,
        long_memory: LongMemory = "last",
        normalise: bool = False,
        skip: PositiveInt = 2,
        form: Form = "sums",
    ) -> None:
        options = {"long_memory": long_memory, "normalise": normalise}
        super().__init__(input_size, hidden_size, gain=gain, steps=steps, **options)
        self.skip, self.terms = skip, 1
        self.form: Form = form

    @classmethod
    def sources(cls, layer: int, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the layer below and every S-th layer before it; the input only for layer 1."""
        skip = options.get("skip", 2)
        if options.get("form", "sums") == "blocks" and layer > 1 and (layer - 2) % skip:
            return (layer - 1,)
        return tuple(range(layer - 1, 0, -skip)) or (0,)

    def _draw_sources(self, sizes: tuple[int, ...]) -> None:
        """Draw one matrix for the sum, instead of one for all sources concatenated."""
        self.terms = len(sizes)
        self.input_weight = nn.Parameter(torch.empty(self.hidden_size, sizes[0]))
        nn.init.kaiming_uniform_(self.input_weight, a=8)

    def read(self, x: Tensor) -> Tensor:
        """Return the sum of the sources."""
        return super().read(
            torch.stack(x.chunk(self.terms, dim=-1)).sum(0) if self.terms > 1 else x
        )


class DenseIndRNNCell(IndRNNCell):
    """Dense IndRNN: every layer reads the input and all layers below.

    Equation:
        h' = relu(w ⊙ h + V [x, y¹, …, y^(ℓ−1)] + b),  |w| ≤ g^(1/T)

    Symbols:
        As in indrnn; x the input of the network, y outputs of the layers below layer ℓ. The
        authors' network also has bottlenecks and transitions, IndRNN layers of other widths; here
        all layers have the same width.

    Promise:
        As indrnn in time; in depth every layer has a short path to the input.

    Args:
        input_size: Number of features of the input at each step; of all sources together.

    Example:
        >>> net = undamped.nn.DenseIndRNN(3, 16, num_layers=3, steps=50)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    independent_units = False  # a layer reads several earlier ones, a block only one

    @classmethod
    def sources(cls, layer: int, options: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(range(layer))


class IndRNN(Recurrent, cell=IndRNNCell, name="indrnn"): ...


class ResidualIndRNN(Recurrent, cell=ResidualIndRNNCell, name="residual-indrnn"): ...


class DenseIndRNN(Recurrent, cell=DenseIndRNNCell, name="dense-indrnn"): ...
