"""Neural ODE (Chen, Rubanova, Bettencourt and Duvenaud, 2018): a field, times, a solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped.ode.flows.field_checks import check_call
from undamped.ode.flows.solve_options import FlowOptions
from undamped.ode.flows.solving import SolvingModule


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
        how: Method, rtol and atol or step_size, max_steps and gradient: see `FlowOptions`.

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
        **how: Unpack[FlowOptions],
    ) -> None:
        super().__init__(how)
        check_call(type(self).__name__, field)
        self.field = field
        self.times = tuple(float(t) for t in times)

    def solve(self, state: Any, times: Sequence[float] | Tensor | None = None, **more: Any) -> Any:
        """Solve from a state and return the `Solution`, which is also kept as `solution`.

        Args:
            state: Tensor or tuple of tensors.
            times: Other times than the model's own.
            more: Further arguments of `undamped.ode.solve`.
        """
        field = more.pop("field", self.field)
        return self.solve_through(field, state, self.times if times is None else times, **more)

    def trajectory(self, state: Any, times: Sequence[float] | None = None) -> Any:
        """Return the states at the model's times, or at others, (times, …)."""
        return self.solve(state, times).values

    def inverse(self, state: Any, **more: Any) -> Any:
        """Return the state at the first time that flows to this one at the last.

        Args:
            state: Tensor or tuple of tensors.
            more: As for `solve`.
        """
        times = more.pop("times", None)
        if times is None:
            times = self.times
        back = times.flip(0) if isinstance(times, Tensor) else tuple(times)[::-1]
        return self.solve(state, back, **more).final

    def forward(self, state: Any) -> Any:
        """Return the state at the last time."""
        return self.solve(state).final
