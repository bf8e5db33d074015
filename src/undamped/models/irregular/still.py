"""A network without a flow: the time since the last sample is a feature, and the state waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from undamped.models.irregular.cell_network import CellNetwork
from undamped.models.irregular.network import Parts
from undamped.models.stamped import gap_feature


class StillNetwork(CellNetwork):
    """A cell that is told the time since the sample before, ln(1 + Δt in usual gaps).

    The state stands still in between. As a network of its own this is what any recurrent network
    does with times; here it is a part of models that need one with this contract.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        cell: The registry name of the network whose cell it is.
        cell_options: Its own options.
        missing: Whether features may be missing.
        gap: The usual time between two samples.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell: str,
        cell_options: Mapping[str, Any],
        missing: bool,
        gap: float,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            cell=cell,
            cell_options=cell_options,
            missing=missing,
            gap=gap,
            more=1,
        )

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """What the cell makes of values, of which were measured, and of the time in between."""
        parts = [x, observed.to(x.dtype)] if self.missing else [x]
        ago = gap_feature(gaps, 1.0).unsqueeze(-1).to(x.dtype)
        return self.cell.project(torch.cat([*parts, ago], -1))

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Nothing happens."""
        return state
