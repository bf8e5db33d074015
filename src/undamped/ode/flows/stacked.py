"""Stacked neural ODEs (Massaroli and others, 2020): one field after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveFloat
from undamped.ode import Solution
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solve_options import FlowOptions
from undamped.ode.flows.waypoints import Waypoints


class StackedODE(nn.Module):
    """Stacked neural ODEs: one field after another, each on its own piece of depth.

    Equation:
        z(S) = h(x) + Σ_i ∫_{s_i}^{s_{i+1}} f_{θ_i}(τ, z(τ)) dτ

    Symbols:
        s_i ends of the pieces, θ_i parameters of piece i.

    Args:
        fields: The fields, in order.
        depth: Time over all of them; each gets an equal part.
        how: Method, rtol and atol or step_size, max_steps and gradient: see `FlowOptions`.

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        fields: Sequence[nn.Module],
        *,
        depth: PositiveFloat = 1.0,
        **how: Unpack[FlowOptions],
    ) -> None:
        super().__init__()
        if not fields:
            raise OptionError(
                explain(
                    "fields", expected="at least one", got="none", remedy="Give a list of fields."
                )
            )
        ends = [depth * k / len(fields) for k in range(len(fields) + 1)]
        self.pieces = nn.ModuleList(
            NeuralODE(field, times=(begin, end), **how)
            for field, begin, end in zip(fields, ends, ends[1:], strict=False)
        )

    def _sum(self, name: str) -> int:
        return sum(getattr(piece, name) for piece in self.pieces)

    @property
    def evaluations(self) -> int:
        """Evaluations of all fields in the last forward pass."""
        return self._sum("evaluations")

    @property
    def evaluations_backward(self) -> int:
        """Evaluations for its gradients."""
        return self._sum("evaluations_backward")

    @property
    def solutions(self) -> list[Solution]:
        """The solutions of the last forward pass, piece by piece."""
        return [piece.solution for piece in self.pieces]  # type: ignore[misc]

    @contextmanager
    def passing_through(self, waypoints: Waypoints) -> Iterator[None]:
        """Let all pieces go from point to point while this lasts, and note where they pass.

        Args:
            waypoints: Into how many pieces all of depth is cut, and where to note them.
        """
        parts = [piece for piece in self.pieces if isinstance(piece, NeuralODE)]
        each = Waypoints(-(-waypoints.pieces // len(parts)), waypoints.gradient)
        with ExitStack() as stack:
            for piece in parts:
                stack.enter_context(piece.passing_through(each))
            yield
        # Where one piece ends the next begins; the state belongs to the one that moves it on.
        met = {waypoint.time: waypoint for waypoint in each if isinstance(waypoint.time, float)}
        waypoints.extend(met.values())

    def inverse(self, state: Tensor) -> Tensor:
        """Return the state at the start of the first piece that flows to this one."""
        for piece in reversed(self.pieces):
            assert isinstance(piece, NeuralODE)
            state = piece.inverse(state)
        return state

    def forward(self, state: Tensor) -> Tensor:
        """Return the state at the end of the last piece."""
        for piece in self.pieces:
            state = piece(state)
        return state
