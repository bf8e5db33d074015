"""Hypersolvers: a cheap explicit method with a small network for its residual (2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode.methods.explicit.runge_kutta import explicit_base
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stages import stage_times
from undamped.ode.solve import solve

Correction = Callable[[Tensor, Tensor, Tensor, float], Tensor]


@register_solver("hyper")
class HyperSolver(Solver):
    """A base method of order p plus a learned correction of its next term.

    Equation:
        y' = y + h ψ(t, y) + h^{p+1} g_ω(t, y, f(t, y), h)

    Promise:
        Where g_ω is within δ of the base method's residual, a step's error is O(δ h^{p+1}).

    Args:
        base: Registry name of the explicit method.
        correction: g_ω, called with time, state, slope and step size; None corrects nothing, and
            the method is its base.

    Reference:
        M. Poli and others. Hypersolvers: toward fast continuous-depth models. NeurIPS, 2020.
    """

    def __init__(self, base: str = "euler", correction: Correction | None = None) -> None:
        self.base = explicit_base("hyper", base)
        self.correction = correction
        self.order = self.base.order

    def tensors(self) -> Sequence[Tensor]:
        return list(self.correction.parameters()) if isinstance(self.correction, nn.Module) else ()

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Step with the base method and add the correction."""
        y = state[0]
        y1, stages = self.base.stages(field, t, h, y)
        if self.correction is not None:
            time = stage_times(t, h, (0.0,), y)[0]
            y1 = y1 + h ** (self.order + 1) * self.correction(time, y, stages[0], h)  # type: ignore[arg-type]
        return (y1,), None

    def residual(self, field: Field, t: float, h: float, y: Tensor, exact: Tensor) -> Tensor:
        """Return what the base method leaves out: (y(t + h) − y − h ψ) / h^{p+1}."""
        y1, _ = self.base.stages(field, t, h, y)
        return (exact - y1) / h ** (self.order + 1)


class CorrectionNetwork(nn.Module):
    """A small network for g_ω: state, field value and step size in, correction out.

    Args:
        size: Number of features of the state, in its last dimension.
        hidden_size: Width of the hidden layer.
    """

    def __init__(self, size: PositiveInt, hidden_size: PositiveInt = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * size + 2, hidden_size), nn.Tanh(), nn.Linear(hidden_size, size)
        )

    def forward(self, t: Tensor, y: Tensor, slope: Tensor, h: float) -> Tensor:
        """Return the correction, of the shape of y."""
        column = y[..., :1]
        inputs = [y, slope, torch.zeros_like(column) + t, torch.full_like(column, h)]
        return self.layers(torch.cat(inputs, dim=-1))


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
        field: The field, which is not trained.
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
            "The correction of the hypersolver must be a module with parameters to train, got "
            f"{type(solver.correction).__name__}. Use a CorrectionNetwork."
        )
    h = end / steps
    times = [h * k for k in range(steps + 1)]
    with torch.no_grad():
        true = solve(field, start, times, rtol=tolerance, atol=tolerance).values
        residuals = [
            solver.residual(field, times[k], h, true[k], true[k + 1]) for k in range(steps)
        ]
    compare = _residual_loss if objective == "residual" else _trajectory_loss
    optimiser = torch.optim.Adam(solver.correction.parameters(), lr=learning_rate)
    losses = []
    for _ in range(iterations):
        optimiser.zero_grad()
        loss = compare(solver, field, h, true, residuals)
        torch.autograd.backward(loss, inputs=list(solver.correction.parameters()))
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vector_norm((a - b).flatten(1), dim=1).mean()


def _residual_loss(
    solver: HyperSolver, field: Field, h: float, true: Tensor, residuals: list[Tensor]
) -> Tensor:
    assert solver.correction is not None
    parts = []
    for k, residual in enumerate(residuals):
        time = torch.full((), h * k, dtype=true.dtype, device=true.device)
        with torch.no_grad():
            slope = field(time, true[k])
        parts.append(_distance(solver.correction(time, true[k], slope, h), residual))
    return torch.stack(parts).mean()


def _trajectory_loss(
    solver: HyperSolver, field: Field, h: float, true: Tensor, residuals: list[Tensor]
) -> Tensor:
    state, parts = (true[0],), []
    for k in range(len(residuals)):
        state, _ = solver.step(field, h * k, h, state)
        parts.append(_distance(state[0], true[k + 1]))
    return torch.stack(parts).mean()
