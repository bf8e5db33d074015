"""What the cells with a constrained dense matrix share: h' = φ(W h + V x), W kept in a set."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from undamped._base.options import PositiveInt
from undamped._base.torch_internals import parametrizations_of
from undamped.kernels.coupled import Step
from undamped.nn.bases.activations import Activation, activate, activation_kernel
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.parametrizations.matrix_set import MatrixSet


class IsometricCell(CoupledCell):
    """h' = φ(W h + V x) with W computed once a pass.

    Args:
        nonlinearity: The function φ.
    """

    costly_constants = True
    needs_full_precision = True
    weight_hh: Tensor

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, nonlinearity: Activation
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.nonlinearity: Activation = nonlinearity
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        nn.init.kaiming_normal_(self.input_weight, nonlinearity="relu")
        if nonlinearity == "modrelu":
            nn.init.uniform_(self.bias, -0.01, 0.01)
        else:
            nn.init.zeros_(self.bias)

    def constrain(self, start: Tensor, matrix_set: MatrixSet) -> None:
        """Make `weight_hh` a matrix of the set, beginning at `start`."""
        self.weight_hh = nn.Parameter(start)
        parametrize.register_parametrization(self, "weight_hh", matrix_set)

    @property
    def matrix_set(self) -> MatrixSet:
        """The set in which `weight_hh` is kept."""
        parametrization = self.parametrizations["weight_hh"][0]  # type: ignore[index]
        assert isinstance(parametrization, MatrixSet)
        return parametrization

    def free_parameters(self) -> list[nn.Parameter]:
        """The parameters behind `weight_hh`, in the order of the set."""
        return list(self.parametrizations["weight_hh"].parameters())  # type: ignore[index]

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters that training gives the second learning rate."""
        return self.free_parameters()

    def recurrent_matrix(self) -> Tensor:
        """The matrix W."""
        return self.constants()[0]

    def constants(self) -> State:
        """The matrix W, computed from its free parameters."""
        return (self.weight_hh,)

    def _constants_source(self) -> nn.Module:
        """Where the free parameters and the set of `weight_hh` are, if it is kept in one."""
        return parametrizations_of(self) or self

    def input_tensors(self) -> State:
        """V, and the bias where φ is not modReLU."""
        return (self.input_weight,) if self._thresholds else (self.input_weight, self.bias)

    @property
    def _thresholds(self) -> bool:
        return self.nonlinearity == "modrelu"

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """φ(W h + V x)."""
        total = projected + self.product(state, constants)
        bias = self.bias if self._thresholds else torch.zeros_like(self.bias)
        return (activate(self.nonlinearity, total, bias),)

    def elementwise(self) -> Step:
        """The kernel of φ."""
        return activation_kernel(self.nonlinearity)

    def elementwise_tensors(self, constants: State) -> State:
        """The threshold of modReLU."""
        return (self.bias,) if self._thresholds else ()
