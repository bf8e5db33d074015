"""Continuous-depth models: an input layer, a flow in depth, a linear readout.

The input is (batch, input), the output (batch, output), for classes or targets; after a forward
pass `evaluations` is the number of field evaluations, after a backward pass `evaluations_backward`
that of the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.promises import Kind, Promise
from undamped.models.continuous.options import check_keeping
from undamped.nn.bases.updates import Penalised
from undamped.ode.flows.gradient_keeping import (
    PENALTIES,
    Penalty,
    direction_penalty,
    every_direction_penalty,
    norm_penalty,
    parameter_penalty,
)
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.flows.neural_ode import NeuralODE, StackedODE
from undamped.ode.flows.waypoints import Waypoints


class GradientKeeping(Penalised):
    """A model with a `flow` and an optional penalty that preserves gradients along depth."""

    penalty_needs_loss = True
    flow: Any
    keep_gradient: Penalty = "none"
    keep_weight: float = 1.0
    keep_points: int = 10
    keep_cosine: float = 0.5
    _waypoints: Waypoints | None = None

    def keep(self, options: Mapping[str, Any], **excluded: str) -> None:
        """Set the penalty of training.

        Args:
            options: All options of a model, complete.
            excluded: Kinds of the penalty that the model does not support, and why.
        """
        check_keeping(options, options.get("gradient", "checkpoint"))
        self.keep_gradient = options["keep_gradient"]
        if self.keep_gradient in excluded:
            kinds = " or ".join(repr(kind) for kind in PENALTIES if kind not in excluded)
            raise OptionError(
                f"{type(self).__name__}.keep_gradient must be {kinds}, got "
                f"'{self.keep_gradient}'. {excluded[self.keep_gradient]}"
            )
        self.keep_weight, self.keep_points = options["keep_weight"], options["keep_points"]
        self.keep_cosine = options["keep_cosine"]
        if self.keep_gradient != "none":
            self.add_update_hooks()

    @contextmanager
    def noting_waypoints(self) -> Iterator[None]:
        """Record waypoints along depth in a training pass, if there is a penalty."""
        self._waypoints = None
        if self.keep_gradient == "none" or not (self.training and torch.is_grad_enabled()):
            yield
            return
        every = self.keep_gradient == "every-direction"
        waypoints = Waypoints(self.keep_points, None if every else "backprop")
        with self.flow.passing_through(waypoints):
            yield
        self._waypoints = waypoints

    def penalty_option(self) -> str:
        """Return the option that sets the penalty, as text; empty for none."""
        return "" if self.keep_gradient == "none" else f"keep_gradient='{self.keep_gradient}'"

    def penalty(self, loss: Tensor | None = None) -> Tensor:
        """Return the penalty on the gradients of the last pass, which training adds to its loss.

        Args:
            loss: The loss of the last prediction.
        """
        self._penalty_used = True
        waypoints = self._waypoints
        if waypoints is None:
            return torch.zeros(()).to(next(self.parameters()))
        if self.keep_gradient == "every-direction":
            return self.keep_weight * every_direction_penalty(waypoints)
        if loss is None:
            raise OptionError(
                f"keep_gradient='{self.keep_gradient}' needs the loss: write "
                "loss + undamped.nn.penalty(model, loss)."
            )
        if self.keep_gradient == "norm":
            return self.keep_weight * norm_penalty(loss, waypoints)
        parameters = [p for p in self.flow.parameters() if p.requires_grad]
        if self.keep_gradient == "parameters":
            return self.keep_weight * parameter_penalty(loss, waypoints, parameters)
        return self.keep_weight * direction_penalty(loss, waypoints, parameters, self.keep_cosine)

    def __getstate__(self) -> dict[str, Any]:
        # Waypoints belong to a pass, and their graph cannot be copied.
        return {**super().__getstate__(), "_waypoints": None}  # type: ignore[misc]


class ContinuousModel(GradientKeeping):
    """A flow in depth with a linear readout; subclasses build `start` and `flow`.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
    """

    start: nn.Module
    flow: NeuralODE | StackedODE
    head: nn.Linear
    input_size: int | None = None

    promises: tuple[Promise, ...] = (
        Promise(Kind.INVERTIBLE_FLOW, "the flow is a homeomorphism: it can be solved back"),
    )

    @property
    def end_of_depth(self) -> float:
        """T, the end of the flow."""
        last = self.flow.segments[-1] if isinstance(self.flow, StackedODE) else self.flow
        assert isinstance(last, NeuralODE)
        return last.times[-1]

    def field_now(self) -> Any:
        """Return the field with its current parameters."""
        assert isinstance(self.flow, NeuralODE)
        return self.flow.field

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the end of depth, (batch, state)."""
        return self.carry(self.start(x))

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the end of depth from one at its start.

        Args:
            state: The state at the start.
            context: Further input of the field, for a model that has one.
        """
        return self.flow(state)

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the start of depth that flows to this one at its end."""
        return self.flow.inverse(state)

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return initial states of random inputs, and further inputs of the field or None."""
        x = torch.randn(count, self.input_size or 1, generator=generator).to(self.head.weight)
        return self.start(x), None

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
        with self.noting_waypoints():
            return self.head(self.features(self.fitting(x)))

    def fitting(self, x: Tensor) -> Tensor:
        """Return the input in the type of the model; raise an error if its shape is wrong."""
        return fitting(x, self.input_size, type_of(self), f"{type(self).__name__} input")

    @property
    def evaluations(self) -> int:
        """Field evaluations of the last forward pass (NFE)."""
        return self.flow.evaluations

    @property
    def evaluations_backward(self) -> int:
        """Field evaluations of the last backward pass."""
        return self.flow.evaluations_backward
