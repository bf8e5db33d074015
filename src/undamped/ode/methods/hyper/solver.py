"""Hypersolvers: a cheap explicit method with a small network for what it leaves out (2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import solvers
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, register_solver
from undamped.ode.methods.stage_times import stage_times

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
        correction: g_ω, called with time, state, f at both, and step size; None corrects
            nothing, and the method is its base.

    Reference:
        M. Poli and others. Hypersolvers: toward fast continuous-depth models. NeurIPS, 2020.
    """

    promises = (Promise(Kind.CORRECTED_ERROR, "a correction within δ leaves an error δ h^{p+1}"),)

    def __init__(self, base: str = "euler", correction: Correction | None = None) -> None:
        member = solvers[base]
        if not (isinstance(member, type) and issubclass(member, RungeKutta)):
            raise OptionError(
                explain(
                    "base of hyper",
                    expected="an explicit Runge–Kutta method",
                    got=f"'{base}'",
                    remedy="Choose 'euler', 'midpoint', 'heun' or 'rk4'.",
                )
            )
        self.base: RungeKutta = member()
        self.correction = correction
        self.order = self.base.order

    def tensors(self) -> Sequence[Tensor]:
        """Return the parameters of the correction."""
        return list(self.correction.parameters()) if isinstance(self.correction, nn.Module) else ()

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Step with the base method and add the correction."""
        y = state[0]
        y1, taken = self.base.stages(field, t, h, y)
        if self.correction is not None:
            time = stage_times(t, h, (0.0,), y)[0]
            y1 = y1 + h ** (self.order + 1) * self.correction(time, y, taken[0], h)  # type: ignore[arg-type]
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
        known = [y, slope, torch.zeros_like(column) + t, torch.full_like(column, h)]
        return self.layers(torch.cat(known, dim=-1))
