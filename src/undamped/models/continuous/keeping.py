"""Models that are trained to keep gradients along their depth.

The penalty is made of the loss, so it is asked for with it: `undamped.nn.penalty(model, loss)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.models.continuous.options import KeepOptions, check_keeping
from undamped.nn.bases.penalised import Penalised
from undamped.ode.flows.gradient_keeping import (
    KEPT,
    Kept,
    direction_penalty,
    every_direction_penalty,
    norm_penalty,
    parameter_penalty,
)
from undamped.ode.flows.waypoints import Waypoints


class GradientKeeping(Penalised):
    """A model with a `flow` whose training passes may be watched, and penalised for it."""

    penalty_needs_loss = True
    flow: Any
    keep_gradient: Kept = "none"
    keep_weight: float = 1.0
    keep_points: int = 10
    keep_cosine: float = 0.5
    _waypoints: Waypoints | None = None

    def keep(self, chosen: KeepOptions, **never: str) -> None:
        """Take over what training is to keep.

        Args:
            chosen: All options, as `checked` completes them.
            never: What this model cannot keep, and why.
        """
        said: dict[str, Any] = dict(chosen)
        check_keeping(chosen, said.get("gradient", "checkpoint"))
        self.keep_gradient = said["keep_gradient"]
        if self.keep_gradient in never:
            raise OptionError(
                explain(
                    f"{type(self).__name__}.keep_gradient",
                    expected=" or ".join(repr(kind) for kind in KEPT if kind not in never),
                    got=f"'{self.keep_gradient}'",
                    remedy=never[self.keep_gradient],
                )
            )
        self.keep_weight, self.keep_points = said["keep_weight"], said["keep_points"]
        self.keep_cosine = said["keep_cosine"]
        if self.keep_gradient != "none":
            self.watch()

    @contextmanager
    def noting_waypoints(self) -> Iterator[None]:
        """Let a training pass go from point to point, if anything is kept."""
        self._waypoints = None
        if self.keep_gradient == "none" or not (self.training and torch.is_grad_enabled()):
            yield
            return
        once = self.keep_gradient == "every-direction"
        met = Waypoints(self.keep_points, None if once else "backprop")
        with self.flow.passing_through(met):
            yield
        self._waypoints = met

    def wanted_penalty(self) -> str:
        """Name the option that asks for the penalty."""
        return "" if self.keep_gradient == "none" else f"keep_gradient='{self.keep_gradient}'"

    def penalty(self, loss: Tensor | None = None) -> Tensor:
        """Return what training adds to its loss for the gradients of the last pass.

        Args:
            loss: The loss made of the last answer.
        """
        self._penalty_taken = True
        waypoints = self._waypoints
        if waypoints is None:
            return torch.zeros(()).to(next(self.parameters()))
        if self.keep_gradient == "every-direction":
            return self.keep_weight * every_direction_penalty(waypoints)
        if loss is None:
            raise OptionError(
                explain(
                    "loss",
                    expected=f"the loss, since keep_gradient='{self.keep_gradient}' looks at its "
                    "gradient",
                    got="none",
                    remedy="Write loss + undamped.nn.penalty(model, loss).",
                )
            )
        if self.keep_gradient == "norm":
            return self.keep_weight * norm_penalty(loss, waypoints)
        parameters = [p for p in self.flow.parameters() if p.requires_grad]
        if self.keep_gradient == "parameters":
            return self.keep_weight * parameter_penalty(loss, waypoints, parameters)
        return self.keep_weight * direction_penalty(loss, waypoints, parameters, self.keep_cosine)

    def __getstate__(self) -> dict[str, Any]:
        # Waypoints belong to a pass, not to the model, and their graph cannot be copied.
        return {**super().__getstate__(), "_waypoints": None}  # type: ignore[misc]
