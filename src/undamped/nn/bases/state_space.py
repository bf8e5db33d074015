"""State-space cells: layers of linear units between two matrices.

The units follow a linear recurrence with the input B u; the output is C s + D u, where s is the
visible part of the units. Both products are outside the loop over time, which is `linear_scan` or
`linear_oscillator_scan`. An output needs the input of its step, so it is the first part of the
state; a step reads only the other parts.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.kernels.linear.block_parts import read_and_pass, stored_product
from undamped.nn.bases.cell import Cell, MemoryPlan, ScanResult, State
from undamped.nn.sequence_tensors import mask_and_last


class StateSpaceCell(Cell):
    """A cell whose units are linear.

    Args:
        hidden_size: Number of features of the output.
        visible_size: Number of features that C reads.
    """

    independent_units = True
    needs_full_precision = True
    memory_plan = MemoryPlan(chunked=True)
    input_weight: nn.Parameter  # (…, input)
    output_weight: nn.Parameter  # (hidden, visible)

    def __init__(self, input_size: int, hidden_size: int, visible_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.visible_size = visible_size
        if input_size == hidden_size:
            passing = torch.randn(hidden_size)
        else:
            passing = torch.randn(hidden_size, input_size) / input_size**0.5
        self.pass_weight = nn.Parameter(passing)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size, *[self.visible_size] * (len(self.state_names) - 1))

    def drive_weight(self) -> Tensor:
        """Return B, (visible, input)."""
        return self.input_weight

    def drive(self, x: Tensor) -> Tensor:
        """Return B u, (…, visible)."""
        return F.linear(x, self.drive_weight())

    def passing(self, x: Tensor) -> Tensor:
        """Return D u, elementwise if the sizes agree."""
        if self.pass_weight.dim() == 1:
            return self.pass_weight * x
        return F.linear(x, self.pass_weight)

    def project(self, x: Tensor) -> Tensor:
        """Return B u and D u, concatenated."""
        return torch.cat([self.drive(x), self.passing(x)], dim=-1)

    def read(self, visible: Tensor) -> Tensor:
        """Return C s."""
        return F.linear(visible, self.output_weight)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step of the units, then read them."""
        drive, passing = projected[..., : self.visible_size], projected[..., self.visible_size :]
        moved = self.move(drive, state[1:], constants)
        return (self.read(moved[0]) + passing, *moved)

    @abstractmethod
    def move(self, drive: Tensor, units: State, constants: State) -> State:
        """Make one step of the units; the part that C reads comes first."""

    @abstractmethod
    def move_along(self, drive: Tensor, units: State, lengths: Tensor | None) -> ScanResult:
        """Make all steps of (time, batch, visible); return the visible part and the last units."""

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan with both products for all steps at once, and the recurrence in its kernel."""
        drive, x = stored_product(x, self.drive_weight())
        visible, units = self.move_along(drive, state[1:], lengths)
        if self.pass_weight.dim() == 1:
            output = read_and_pass(visible, x, self.output_weight, self.pass_weight)
        else:
            output = self.read(visible) + self.passing(x)
        output, last = mask_and_last(output, state[0], lengths)
        return output, (last, *units)
