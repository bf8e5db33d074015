"""Models whose field has parameters that change with depth by their own ODE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import flow_of
from undamped.ode.fields.moving import MovingField
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.shared_flow import AlongPath, SharedFlow, StillPath, TurningAlongPath

TOLERANCE_FACTOR = 0.1
"""Tolerance of the parameters relative to that of the samples."""
FIXED_TOLERANCE = 1e-6
"""Tolerance of the parameters if the steps of the samples are fixed."""


class MovingModel(ContinuousModel):
    """A model whose field has parameters that move with depth, or constant ones."""

    shared: SharedFlow | None
    turning = False
    """Whether samples only rotate, so that Lie-group methods can solve their flow."""

    def _build(
        self,
        sizes: tuple[int, int, int],
        field: MovingField,
        moves: bool,
        solve: Mapping[str, Any],
        group: type,
        matrix_method: str | None,
        matrix_steps: int | None,
    ) -> None:
        input_size, state_size, output_size = sizes
        self.start = nn.Linear(input_size, state_size)
        self.flow = flow_of(field, solve, group)
        self.keep(solve)
        self.shared = None
        if moves:
            rtol = self.flow.rtol
            self.shared = SharedFlow(
                field,
                depth=self.end_of_depth,
                method=matrix_method,
                steps=matrix_steps,
                tolerance=FIXED_TOLERANCE if rtol is None else TOLERANCE_FACTOR * rtol,
            )
        self.head = nn.Linear(state_size, output_size)
        self.input_size = input_size

    @property
    def _ode(self) -> NeuralODE:
        assert isinstance(self.flow, NeuralODE)
        return self.flow

    @property
    def field(self) -> Any:
        """The field with its initial parameters."""
        return self._ode.field

    def field_now(self) -> Any:
        """Return the field of the samples, with parameters solved over all of depth."""
        if self.shared is None and not self.turning:
            return self.field
        path = self.shared.path() if self.shared else StillPath(self.field.beginning())
        along = AlongPath(self.field, path)
        return TurningAlongPath(along) if self.turning else along

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the end of depth from one at its start."""
        return self._ode.solve(state, field=self.field_now()).final

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the start of depth that flows to this one at its end."""
        return self._ode.inverse(state, field=self.field_now())
