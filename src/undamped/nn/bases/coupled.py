"""Cells whose step is a linear map and an elementwise function, run by `coupled_scan`.

The functions φ of dense cells are here, each with its kernel. modReLU changes the modulus of a
number and not its sign or phase: φ(z) = z/|z| · relu(|z| + b). With b = 0 it is the identity, so
that networks with a long memory start near it (M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution
recurrent neural networks. ICML, 2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.coupled import Operator, Step, coupled_scan, operators, projections, steps
from undamped.kernels.coupled.scan import Reference
from undamped.kernels.dispatch import implementation, use_plain_loops
from undamped.nn.bases.cell import Cell, ScanResult, State, loop_scan, reference_scan


def runs_compiled(*tensors: Tensor) -> bool:
    """Return whether the compiled kernels can process these tensors now."""
    return implementation(*tensors) != "reference"


class CoupledCell(Cell):
    """A cell whose first constant is the matrix that multiplies the state.

    `advance` defines the step; `elementwise` and `operator` name the kernels that compute the same.
    By default the input is projected by `input_weight` and `bias`, and `weight_hh` multiplies the
    state.
    """

    kernel: ClassVar[Step]
    """The kernel of the elementwise part, if it does not depend on options of the cell."""
    input_weight: Tensor
    bias: Tensor
    weight_hh: Tensor

    def elementwise(self) -> Step:
        """Return the kernel of the elementwise part."""
        return self.kernel

    def operator(self) -> Operator:
        """Return the kernel of the linear part: a dense matrix unless overridden."""
        return operators.Dense()

    def constants(self) -> State:
        """Return the recurrent matrix."""
        return (self.weight_hh,)

    def linear_tensors(self, constants: State) -> State:
        """Return the tensors of the operator: the first constant unless overridden."""
        return constants[:1]

    def elementwise_tensors(self, constants: State) -> State:
        """Return the trained tensors of the elementwise part: the other constants by default."""
        return constants[1:]

    def input_tensors(self) -> State:
        """Return V and, where there is one, b of the projected input V x + b."""
        return self.input_weight, self.bias

    def project(self, x: Tensor) -> Tensor:
        """Return V x + b."""
        return F.linear(x, *self.input_tensors())

    def _projector(self) -> Callable[[Tensor], Tensor]:
        """Return `project` with its tensors computed beforehand."""
        if type(self).project is not CoupledCell.project:
            return self.project
        tensors = self.input_tensors()
        return lambda x: F.linear(x, *tensors)

    def product(self, state: State, constants: State) -> Tensor:
        """Return the product of the recurrent matrix and the state, for `advance`."""
        joined = state[0] if len(state) == 1 else torch.cat(state, dim=-1)
        return F.linear(joined, constants[0])

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan with the fused kernels, or in `plain_scan` where they cannot run."""
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
            reference=self.reference(lengths),
        )

    def reference(self, lengths: Tensor | None) -> Reference | None:
        """Return the recurrence in plain PyTorch, for second derivatives, if the cell has it."""
        return None

    def plain_scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan where the compiled kernels cannot run."""
        return loop_scan(self, x, state, lengths)


Activation = Literal["modrelu", "tanh", "relu", "leaky-relu", "identity"]
LEAK = {"relu": 0.0, "leaky-relu": 0.1, "identity": 1.0}


def modrelu(values: Tensor, bias: Tensor) -> Tensor:
    """Return sign(z) relu(|z| + b)."""
    return torch.sign(values) * torch.relu(values.abs() + bias)


def activate(kind: Activation, values: Tensor, bias: Tensor) -> Tensor:
    """Return φ of values; the bias is a threshold for modReLU, and is added for all others."""
    if kind == "modrelu":
        return modrelu(values, bias)
    total = values + bias
    if kind == "relu":
        return torch.relu(total)  # a leak of zero would make NaN of −∞
    return torch.tanh(total) if kind == "tanh" else F.leaky_relu(total, LEAK[kind])


def activation_kernel(kind: Activation) -> Step:
    """Return the kernel of φ, for values that contain the bias."""
    if kind == "modrelu":
        return steps.ModRelu()
    return steps.Tanh() if kind == "tanh" else steps.LeakyRelu(LEAK[kind])
