"""Networks whose jump is a cell of the registry, and whose flow moves its hidden state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from undamped.models.irregular.named_parts import cell_named
from undamped.models.irregular.network import JumpNetwork, Parts


class CellNetwork(JumpNetwork):
    """Flow over the gap, then one step of a cell.

    What flows is the first part of the cell's state, which the readout sees: the hidden state of
    an LSTM and not its memory, the positions of oscillators and not their velocities.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        cell: The registry name of the network whose cell jumps.
        cell_options: Its own options.
        missing: Whether features may be missing.
        gap: The usual time between two samples.
        more: Further features that the cell reads.
    """

    gap_flow: Any
    """A `GapFlow` of the first part of the state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell: str,
        cell_options: Mapping[str, Any],
        missing: bool,
        gap: float,
        more: int = 0,
    ) -> None:
        super().__init__(input_size, hidden_size, missing=missing, gap=gap)
        width = input_size * (2 if missing else 1) + more
        self.cell = cell_named(cell, width, hidden_size, cell_options)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Those of the cell."""
        return tuple(size or 0 for size in self.cell.state_sizes)

    @property
    def output_size(self) -> int:
        """That of the cell."""
        return self.cell.output_size

    def initial_state(self, batch: int, like: Tensor | None = None) -> Parts:
        """Return the cell's own first state, at time 0."""
        like = next(self.parameters()) if like is None else like
        start = self.cell.initial_state(batch, like)
        return (*start, torch.zeros(batch, dtype=torch.float64, device=like.device))

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """What the cell makes of values, and of which were measured."""
        return self.cell.project(torch.cat([x, observed.to(x.dtype)], -1) if self.missing else x)

    def constants(self) -> Parts:
        """Those of the cell."""
        return self.cell.steady_constants()

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """One step of the cell."""
        return self.cell.advance(projected, state, constants)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Move the first part of the state."""
        return (self.gap_flow(state[0], gaps), *state[1:])

    def output(self, state: Parts) -> Tensor:
        """What the cell shows of its state."""
        return self.cell.output(state)

    @property
    def evaluations(self) -> int:
        """Calls of the field in the last flow over a gap."""
        return self.gap_flow.evaluations
