"""Measuring what a cell promises.

Each kind of promise has one way of being measured, on random states and inputs in double
precision. A promise is kept when the measured value does not exceed its limit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.analysis.promise_measures_family import FAMILY_MEASURES
from undamped.cells.bases.cell import Cell, State
from undamped.promises import Kind, Promise

ROUNDING = 1e-9
SAMPLES = 8
STEPS = 200


@dataclass(frozen=True)
class Measurement:
    """A claim and what was found."""

    promise: Promise
    value: float
    limit: float
    meaning: str

    @property
    def kept(self) -> bool:
        """Whether the claim holds."""
        return self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return claim and measurement for JSON."""
        numbers = {key: value for key, value in asdict(self).items() if key != "promise"}
        return {
            "kind": self.promise.kind.value,
            "claim": self.promise.claim,
            **numbers,
            "kept": self.kept,
        }


def measure(cell: Cell, *, seed: int = 0) -> list[Measurement]:
    """Measure every promise of a cell.

    Args:
        cell: The cell; a copy in double precision is measured.
        seed: Where random states and inputs come from.
    """
    generator = torch.Generator().manual_seed(seed)
    results = []
    for promise in cell.promises:
        probe = copy.deepcopy(cell).double().eval()
        value, limit, meaning = _MEASURES[promise.kind](probe, generator)
        results.append(Measurement(promise, value, limit, meaning))
    return results


def _random_step(cell: Cell, generator: torch.Generator) -> tuple[Tensor, State]:
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = tuple(
        torch.randn(1, cell.state_size, generator=generator, dtype=torch.float64)
        for _ in cell.state_names
    )
    return cell.project(x), state


def step_jacobian(cell: Cell, projected: Tensor, state: State) -> Tensor:
    """Return the Jacobian of one step in its state, all parts of the state side by side."""
    constants = cell.constants()
    width = state[0].shape[-1]

    def step(flat: Tensor) -> Tensor:
        parts = tuple(flat[:, i * width : (i + 1) * width] for i in range(len(state)))
        return torch.cat(cell.advance(projected, parts, constants), dim=-1).squeeze(0)

    jacobian = torch.autograd.functional.jacobian(step, torch.cat(state, dim=-1))
    assert isinstance(jacobian, Tensor)
    return jacobian.squeeze(1)


def _bounded_step_gradient(cell: Any, generator: torch.Generator) -> tuple[float, float, str]:
    norms = [
        torch.linalg.matrix_norm(step_jacobian(cell, *_random_step(cell, generator)), 2).item()
        for _ in range(SAMPLES)
    ]
    bound = cell.step_gradient_bound().item()
    return max(norms), bound * (1 + ROUNDING), "largest ‖∂h'/∂h‖ over random states"


def _isometric(cell: Any, generator: torch.Generator) -> tuple[float, float, str]:
    matrix = cell.recurrent_matrix().detach()
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    # Weights are drawn in single precision, so that is how orthogonal they can be.
    return (matrix.mH @ matrix - identity).abs().max().item(), 1e-5, "largest entry of |WᵀW − I|"


def _invertible(cell: Cell, generator: torch.Generator) -> tuple[float, float, str]:
    worst = 0.0
    for _ in range(SAMPLES):
        projected, state = _random_step(cell, generator)
        constants = cell.constants()
        back = cell.inverse(projected, cell.advance(projected, state, constants), constants)
        for found, true in zip(back, state, strict=True):
            worst = max(worst, (found - true).abs().max().item())
    return worst, ROUNDING, "largest error after a step forth and back"


def _volume_preserving(cell: Cell, generator: torch.Generator) -> tuple[float, float, str]:
    errors = [
        abs(torch.linalg.det(step_jacobian(cell, *_random_step(cell, generator))).item() - 1)
        for _ in range(SAMPLES)
    ]
    return max(errors), ROUNDING, "largest |det J − 1|"


def _symplectic(cell: Cell, generator: torch.Generator) -> tuple[float, float, str]:
    size = cell.state_size
    zero, one = torch.zeros(size, size).double(), torch.eye(size).double()
    form = torch.cat([torch.cat([zero, one], 1), torch.cat([-one, zero], 1)])
    worst = 0.0
    for _ in range(SAMPLES):
        jacobian = step_jacobian(cell, *_random_step(cell, generator))
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, ROUNDING, "largest entry of |JᵀΩJ − Ω|"


@torch.no_grad()
def _bounded_state(cell: Any, generator: torch.Generator) -> tuple[float, float, str]:
    x = torch.randn(STEPS, SAMPLES, cell.input_size, generator=generator, dtype=torch.float64)
    state, projected, constants = cell.initial_state(SAMPLES, x), cell.project(x), cell.constants()
    worst = 0.0
    for step in range(STEPS):
        state = cell.advance(projected[step], state, constants)
        bounds = cell.state_bound(step + 1)
        ratios = [
            part.abs().max().item() / bound for part, bound in zip(state, bounds, strict=True)
        ]
        worst = max(worst, *ratios)
    return worst, 1.0, "largest state as a share of its bound"


_MEASURES: dict[Kind, Callable[[Any, torch.Generator], tuple[float, float, str]]] = {
    Kind.BOUNDED_STEP_GRADIENT: _bounded_step_gradient,
    Kind.STARTS_ISOMETRIC: _isometric,
    Kind.ISOMETRIC: _isometric,
    Kind.INVERTIBLE: _invertible,
    Kind.VOLUME_PRESERVING: _volume_preserving,
    Kind.SYMPLECTIC: _symplectic,
    Kind.BOUNDED_STATE: _bounded_state,
    **FAMILY_MEASURES,
}
