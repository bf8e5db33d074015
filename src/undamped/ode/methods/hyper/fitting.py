"""Fitting the correction of a hypersolver: step by step, or along whole trajectories."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode.methods.hyper.solver import HyperSolver
from undamped.ode.methods.solver import Field
from undamped.ode.solve import solve


def fit(
    solver: HyperSolver,
    field: Field,
    start: Tensor,
    *,
    end: float,
    steps: PositiveInt,
    objective: Literal["residual", "trajectory"] = "residual",
    iterations: PositiveInt = 500,
    learning_rate: PositiveFloat = 1e-2,
    tolerance: PositiveFloat = 1e-8,
) -> list[float]:
    """Train g_ω against an accurate solve of the same field; return the losses.

    Equation:
        residual: mean over steps of ‖R_k − g_ω‖, R_k what the base method leaves out of step k;
        trajectory: mean over steps of ‖y(t_k) − y_k‖, y_k from the hypersolver itself

    Args:
        solver: The hypersolver; its correction must be a module.
        field: The field, held as it is.
        start: States to start from, (batch, …).
        end: End time; the start is zero.
        steps: Steps of the hypersolver in the forward pass.
        objective: What to compare.
        iterations: Steps of Adam.
        learning_rate: Of Adam.
        tolerance: Of the accurate solve.
    """
    if not isinstance(solver.correction, nn.Module):
        raise OptionError(
            explain(
                "correction of the hypersolver",
                expected="a module with parameters to train",
                got=type(solver.correction).__name__,
                remedy="Give it a CorrectionNetwork.",
            )
        )
    h = end / steps
    times = [h * k for k in range(steps + 1)]
    with torch.no_grad():
        true = solve(field, start, times, rtol=tolerance, atol=tolerance).values
        residuals = [
            solver.residual(field, times[k], h, true[k], true[k + 1]) for k in range(steps)
        ]
    optimiser = torch.optim.Adam(solver.correction.parameters(), lr=learning_rate)
    losses = []
    for _ in range(iterations):
        optimiser.zero_grad()
        if objective == "residual":
            loss = _residual_loss(solver, field, times, h, true, residuals)
        else:
            loss = _trajectory_loss(solver, field, times, h, true)
        torch.autograd.backward(loss, inputs=list(solver.correction.parameters()))
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vector_norm((a - b).flatten(1), dim=1).mean()


def _residual_loss(
    solver: HyperSolver,
    field: Field,
    times: list[float],
    h: float,
    true: Tensor,
    residuals: list[Tensor],
) -> Tensor:
    assert solver.correction is not None
    parts = []
    for k, residual in enumerate(residuals):
        time = torch.full((), times[k], dtype=true.dtype, device=true.device)
        with torch.no_grad():
            slope = field(time, true[k])
        parts.append(_distance(solver.correction(time, true[k], slope, h), residual))
    return torch.stack(parts).mean()


def _trajectory_loss(
    solver: HyperSolver, field: Field, times: list[float], h: float, true: Tensor
) -> Tensor:
    state, parts = (true[0],), []
    for k in range(len(times) - 1):
        state, _ = solver.step(field, times[k], h, state)
        parts.append(_distance(state[0], true[k + 1]))
    return torch.stack(parts).mean()
