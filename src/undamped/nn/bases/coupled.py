"""Cells whose step is one linear map and something elementwise, run by `coupled_scan`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.coupled import Operator, Step, coupled_scan, operators, projections
from undamped.kernels.dispatch import implementation, use_plain_loops
from undamped.nn.bases.cell import Cell, State, loop_scan, reference_scan


def runs_compiled(*tensors: Tensor) -> bool:
    """Say whether the compiled kernels can take these tensors, here and now."""
    return implementation(*tensors) != "reference"


class CoupledCell(Cell):
    """A cell that fits the engine: the first of its constants is the matrix that reads the state.

    `advance` is the meaning; `elementwise`, `operator` and `projection` name the kernels that do
    the same.
    """

    @abstractmethod
    def elementwise(self) -> Step:
        """Return the kernel of the elementwise part."""

    def operator(self) -> Operator:
        """Return the kernel of the linear part: a dense matrix unless overridden."""
        return operators.Dense()

    def linear_tensors(self, constants: State) -> State:
        """Return the tensors the operator is made of: the first constant unless overridden."""
        return constants[:1]

    def elementwise_tensors(self, constants: State) -> State:
        """Return the trained tensors of the elementwise part."""
        return ()

    @abstractmethod
    def input_tensors(self) -> State:
        """Return V and, where there is one, b of the projected input V x + b."""

    def project(self, x: Tensor) -> Tensor:
        """V x + b."""
        return F.linear(x, *self.input_tensors())

    def _projector(self) -> Callable[[Tensor], Tensor]:
        """Return `project` with its tensors put together beforehand."""
        if type(self).project is not CoupledCell.project:
            return self.project
        tensors = self.input_tensors()
        return lambda x: F.linear(x, *tensors)

    def product(self, state: State, constants: State) -> Tensor:
        """Return what the operator makes of the state, for `advance`."""
        read = state[0] if len(state) == 1 else torch.cat(state, dim=-1)
        return F.linear(read, constants[0])

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Scan with the fused kernels, or plainly where they cannot run."""
        if use_plain_loops():
            return reference_scan(self, x, state, lengths)
        constants = self.cached_constants()
        linear, weights = self.linear_tensors(constants), self.elementwise_tensors(constants)
        if not runs_compiled(x, *state, *linear, *weights):
            return self.plain_scan(x, state, lengths)
        return coupled_scan(
            self.elementwise(),
            self.operator(),
            projections.Linear(),
            x,
            state,
            input_tensors=self.input_tensors(),
            linear=linear,
            weights=weights,
            lengths=lengths,
        )

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Scan where the compiled kernels cannot."""
        return loop_scan(self, x, state, lengths)
