"""Promises about what a state does between samples."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.promises import HasGaps
from undamped.analysis.promises.result import Result

STATES = 16
LONGEST = 100.0
"""In usual gaps: how long the longest gap of a measurement is."""
ROUNDING = 1e-11


def _example(
    network: HasGaps, generator: torch.Generator
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Return random states, and two random gaps for each."""
    state = tuple(
        torch.randn(STATES, size, generator=generator, dtype=torch.float64)
        for size in network.state_sizes
    )
    first, second = LONGEST * torch.rand(2, STATES, generator=generator, dtype=torch.float64)
    return state, first, second


def _norms(state: tuple[Tensor, ...]) -> Tensor:
    return torch.cat(state, dim=-1).norm(dim=-1)


@torch.no_grad()
def measure_isometric(network: HasGaps, generator: torch.Generator) -> Result:
    """Compare norms before and after long gaps."""
    state, gap, _ = _example(network, generator)
    change = (_norms(network.flow(state, gap)) / _norms(state) - 1).abs().max().item()
    return change, ROUNDING, "largest relative change of a norm over a gap"


@torch.no_grad()
def measure_contracting(network: HasGaps, generator: torch.Generator) -> Result:
    """Look for a norm that grows over a gap."""
    state, gap, _ = _example(network, generator)
    growth = (_norms(network.flow(state, gap)) / _norms(state)).max().item()
    return growth, 1.0 + ROUNDING, "largest growth of a norm over a gap"


@torch.no_grad()
def measure_semigroup(network: HasGaps, generator: torch.Generator) -> Result:
    """Flow over two gaps one after the other, and over both at once."""
    state, first, second = _example(network, generator)
    twice = network.flow(network.flow(state, first), second)
    once = network.flow(state, first + second)
    error = max((a - b).abs().max().item() for a, b in zip(twice, once, strict=True))
    return error, ROUNDING, "largest difference between two gaps and one"


@torch.no_grad()
def measure_bounded(network: HasGaps, generator: torch.Generator) -> Result:
    """Flow from states between −1 and 1, the corners among them, over long gaps."""
    state, gap, _ = _example(network, generator)
    inside = tuple(part.clamp(-1, 1) for part in state)
    largest = max(part.abs().max().item() for part in network.flow(inside, gap))
    return largest, 1.0 + 1e-6, "largest number of a state after a gap"
