"""What the complex cells share: h' = modReLU(W h + V x) with W unitary.

Complex numbers are kept as pairs of real ones side by side, (real | imaginary), in parameters,
states and outputs, so that every optimiser, file and readout can take them. State and output
are therefore twice the hidden size.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.activations import complex_modrelu
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.parametrizations.complex_pair import real_form


class UnitaryCell(CoupledCell):
    """h' = modReLU(W h + V x), W unitary, h complex.

    Args:
        hidden_size: Number of complex units.
    """

    promises = (Promise(Kind.ISOMETRIC, "W is unitary, trained or not"),)
    costly_constants = True
    needs_full_precision = True
    softening: ClassVar[float] = 1e-5
    """The number ε in z relu(|z| + b)/(|z| + ε)."""
    structured: bool = True
    """Whether a product may use the structure of W; if not, W is always formed."""
    learns_start: ClassVar[bool] = True
    """Whether the first state is trained."""

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
        """Real and imaginary parts."""
        return (2 * self.hidden_size,)

    @property
    def output_size(self) -> int:
        """Real and imaginary parts."""
        return 2 * self.hidden_size

    def initial_state(self, batch: int, like: Tensor) -> State:
        """The trained first state where there is one, or zeros."""
        if self.learns_start:
            return (self.start.to(like).expand(batch, -1),)
        return super().initial_state(batch, like)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """The complex matrix W."""

    def constants(self) -> State:
        """W as a real matrix of twice the size."""
        return (real_form(self.recurrent_matrix()),)

    def input_tensors(self) -> State:
        """V, real and imaginary parts."""
        return (self.input_weight,)

    def threshold(self) -> Tensor:
        """The number b of modReLU."""
        return self.bias

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """modReLU(W h + V x)."""
        total = projected + self.product(state, constants)
        return (complex_modrelu(total, self.threshold(), self.softening),)

    def elementwise(self) -> Step:
        """The kernel of complex modReLU."""
        return steps.ComplexModRelu(self.softening)

    def elementwise_tensors(self, constants: State) -> State:
        """The threshold of modReLU."""
        return (self.threshold(),)
