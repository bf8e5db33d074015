"""Neural ODE (Chen, Rubanova, Bettencourt and Duvenaud, 2018): a field, times, a solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from undamped.checked import checked
from undamped.flows.solving import SolvingModule
from undamped.options import PositiveFloat, PositiveInt
from undamped.solvers import Solver, solve
from undamped.solvers.settings import Gradient


class NeuralODE(SolvingModule):
    """A neural ODE: the state flows along a field from the first time to the last.

    Equation:
        ḣ = f(t, h, θ),  output h(T) for h(0) = input

    Symbols:
        h state, f field, θ its parameters, T last time.

    Args:
        field: dh/dt, a module called with (t, h).
        times: First and last time, or more; all outputs after the first are available from
            `trajectory`.
        method: A solver or its registry name.
        rtol: Relative tolerance, where the method chooses its steps.
        atol: Absolute tolerance, likewise.
        step_size: Fixed step size, for methods that do not, or to keep the cost fixed.
        max_steps: Steps after which to give up.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.NeuralODE(PerceptronField(2, 32), rtol=1e-4, atol=1e-5)
        >>> model(torch.randn(8, 2)).shape, model.evaluations
        (torch.Size([8, 2]), 20)

    Reference:
        R. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud. Neural ordinary differential
        equations. NeurIPS, 2018.
    """

    @checked
    def __init__(
        self,
        field: nn.Module,
        *,
        times: Sequence[float] = (0.0, 1.0),
        method: str | Solver = "dopri5",
        rtol: PositiveFloat | None = None,
        atol: PositiveFloat | None = None,
        step_size: PositiveFloat | None = None,
        max_steps: PositiveInt = 100_000,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__(method, rtol, atol, gradient, step_size)
        self.field = field
        self.times = tuple(float(t) for t in times)
        self.max_steps = max_steps

    def solve(self, state: Any, times: Sequence[float] | Tensor | None = None, **more: Any) -> Any:
        """Solve from a state and return the `Solution`, which is also kept as `solution`.

        Args:
            state: Tensor or tuple of tensors.
            times: Other times than the model's own.
            more: Further arguments of `undamped.solvers.solve`.
        """
        options: dict[str, Any] = {"max_steps": self.max_steps}
        if self.step_size is not None:
            options["step_size"] = self.step_size
        field = more.pop("field", self.field)
        self.solution = solve(
            field,
            state,
            self.times if times is None else times,
            method=self.method,
            rtol=self.rtol,
            atol=self.atol,
            options=options,
            gradient=self.gradient,
            **more,
        )
        return self.solution

    def trajectory(self, state: Any, times: Sequence[float] | None = None) -> Any:
        """Return the states at the model's times, or at others, (times, …)."""
        return self.solve(state, times).values

    def forward(self, state: Any) -> Any:
        """Return the state at the last time."""
        return self.solve(state).final
