"""Promises of cells that attend to remembered states."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from undamped._base.promises import HasMemory, HasSteps
from undamped.analysis.promises.result import Result

FEW, MANY = 10, 1000
FACTORS = {"half": 0.5, "sum": 1.0}


@torch.no_grad()
def measure_fixed_state(cell: HasSteps, generator: torch.Generator) -> Result:
    """Compare the bytes of a state after many steps with those after a few."""
    sizes = [sum(part.nbytes for part in _state_after(cell, n, generator)) for n in (FEW, MANY)]
    return abs(sizes[1] - sizes[0]), 0, f"bytes more after {MANY} steps than after {FEW}"


def measure_direct_path(cell: HasMemory, generator: torch.Generator) -> Result:
    """Compare ∂s/∂m for a remembered m with a (I + (m − c) ∂e/∂mᵀ), as one step has it.

    Only what is still remembered after the step counts: the first slot leaves in it.
    """
    state = _state_after(cell, FEW * 5, generator)
    projected = cell.project(
        torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    )
    constants, worst = cell.constants(), 0.0
    query, _, memory = cell.split(state)
    slots, scores, seen = cell.as_slots(memory, 1)
    carried = state[: len(state) - len(memory)]

    def advanced(slots: Tensor) -> tuple[Tensor, ...]:
        return cell.advance(projected, (*carried, *cell.from_slots(slots, scores, seen)), constants)

    after = advanced(slots)
    states, _, still = (part.detach() for part in cell.as_slots(cell.split(after)[2], 1))
    weights = cell.weights(query, states, still)
    context = (weights.unsqueeze(-1) * states).sum(1)[0]
    through = jacobian(lambda slots: advanced(slots)[1][0], slots)
    assert isinstance(through, Tensor)
    factor = FACTORS.get(cell.attention.mix)
    mixing = cell.attention.mixing
    for before in range(1, slots.shape[1]):
        places = (states[0] == slots[0, before]).all(-1) & (still[0] != 0)
        if not seen[0, before] or not bool(places.any()):
            continue
        place = int(places.nonzero()[0])
        slope = jacobian(
            lambda m, at=place: _score(cell, query, states, still, at, m), states[0, place]
        )
        assert isinstance(slope, Tensor)
        direct = torch.eye(len(context)).double() + torch.outer(states[0, place] - context, slope)
        reads = weights[0, place] * direct
        expected = factor * reads if factor else mixing[:, len(context) :] @ reads
        worst = max(worst, (through[:, 0, before] - expected).abs().max().item())
    return worst, 1e-9, "largest entry of ∂s/∂m − a (I + (m − c) ∂e/∂mᵀ)"


def _score(
    cell: HasMemory, query: Tensor, states: Tensor, seen: Tensor, place: int, m: Tensor
) -> Tensor:
    """Return log a of a remembered state as a function of it, plus what all scores share."""
    varied = states.index_copy(1, torch.tensor([place]), m.view(1, 1, -1))
    weights = cell.weights(query, varied, seen)[0]
    other = (place + 1) % len(weights) if len(weights) > 1 else place
    # The difference of two logarithms is that of their scores, of which one does not depend on m.
    while not seen[0, other] or other == place:
        other = (other + 1) % len(weights)
    return weights[place].log() - weights[other].log()


def _state_after(cell: HasSteps, steps: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = torch.randn(steps, 1, cell.input_size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        state, projected, constants = cell.initial_state(1, x), cell.project(x), cell.constants()
        for projected_t in projected:
            state = cell.advance(projected_t, state, constants)
    return state
