"""Continuous-depth models: an input layer, a flow in depth, a linear readout; and their options.

The input is (batch, input), the output (batch, output), for classes or targets; after a forward
pass `evaluations` is the number of field evaluations, after a backward pass `evaluations_backward`
that of the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import (
    Default,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    options_in,
    select,
)
from undamped._base.promises import Kind, Promise
from undamped.nn.bases.updates import Penalised
from undamped.ode.fields.perceptron import Activation
from undamped.ode.flows.depth_gradients import (
    PENALTIES,
    Penalty,
    direction_penalty,
    every_direction_penalty,
    norm_penalty,
    parameter_penalty,
)
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.flows.neural_ode import NeuralODE, StackedODE
from undamped.ode.flows.solving import SolveOptions, Waypoints, solver_arguments

DEPTH = "Time T at the end of depth."
Cosine = Annotated[float, Range(low=0, high=1, open_low=True)]


class AugmentedOptions(TypedDict, total=False):
    """Sizes of a field and of its augmented state."""

    hidden_size: Annotated[PositiveInt, Default(32, "Width of the field.")]
    augmented_size: Annotated[
        NonNegativeInt, Default(0, "Zeros added to the input (ANODE); 0 for none.")
    ]


class FieldOptions(AugmentedOptions, total=False):
    """Sizes and activation of a field."""

    activation: Annotated[Activation, Default("tanh", "Activation of the field.")]


class KeepOptions(TypedDict, total=False):
    """A penalty of training that preserves gradients along depth."""

    keep_gradient: Annotated[
        Penalty,
        Default(
            "none",
            "What a training penalty preserves along depth: the norm of a = ∂L/∂h(t), the norm of "
            "the parameters' part y = a ∂f/∂θ, the direction of y, or the norm of gradients in "
            "every direction.",
        ),
    ]
    keep_weight: Annotated[PositiveFloat, Default(1.0, "Factor on that penalty.")]
    keep_points: Annotated[
        PositiveInt, Default(10, "Number of depths at which the gradient is penalised.")
    ]
    keep_cosine: Annotated[Cosine, Default(0.5, "For 'direction': least cosine of y(t) and y(T).")]


class DepthOptions(SolveOptions, KeepOptions, total=False):
    """Depth of a model, its solver, and the penalty on gradients."""

    depth: Annotated[PositiveFloat, Default(1.0, DEPTH)]


def flow_of(field: nn.Module, options: Mapping[str, Any], group: type = DepthOptions) -> NeuralODE:
    """Return the flow of a field over all of depth, by complete options of a group."""
    return NeuralODE(field, times=(0.0, options["depth"]), **flow_arguments(options, group))


def flow_arguments(options: Mapping[str, Any], group: type = DepthOptions) -> dict[str, Any]:
    """Return method, gradient and tolerances or a step size, as flows take them."""
    solver: Any = select(options, SolveOptions)
    return solver_arguments(solver, group)


class GradientKeeping(Penalised):
    """A model with a `flow` and an optional penalty that preserves gradients along depth."""

    penalty_needs_loss = True
    flow: Any
    keep_gradient: Penalty = "none"
    keep_weight: float = 1.0
    keep_points: int = 10
    keep_cosine: float = 0.5
    _waypoints: Waypoints | None = None

    def _set_penalty(self, options: Mapping[str, Any], **excluded: str) -> None:
        """Set the penalty of training; refuse options that have no effect or cannot be combined.

        Args:
            options: All options of a model, complete.
            excluded: Kinds of the penalty that the model does not support, and why.
        """
        kind, declared = options["keep_gradient"], options_in(KeepOptions)
        for name in ("keep_weight", "keep_points", "keep_cosine"):
            unused = kind == "none" or (name == "keep_cosine" and kind != "direction")
            if unused and options[name] != declared[name].default:
                raise OptionError(
                    f"{name}={options[name]:g} has no effect with keep_gradient='{kind}'. Set "
                    "keep_gradient, or leave it out."
                )
        gradient = options.get("gradient", "checkpoint")
        if kind not in ("none", "every-direction") and gradient in ("adjoint", "reversible"):
            raise OptionError(
                f"gradient='{gradient}' cannot be combined with keep_gradient='{kind}', which "
                "differentiates gradients and so needs the graph of every training pass. Leave it "
                "out, or choose keep_gradient='every-direction'."
            )
        if kind in excluded:
            kinds = " or ".join(repr(name) for name in PENALTIES if name not in excluded)
            raise OptionError(
                f"{type(self).__name__}.keep_gradient must be {kinds}, got '{kind}'. "
                f"{excluded[kind]}"
            )
        for name in declared:
            setattr(self, name, options[name])
        if kind != "none":
            self.add_update_hooks()

    @contextmanager
    def recording_waypoints(self) -> Iterator[None]:
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
        return "" if self.keep_gradient == "none" else f"keep_gradient='{self.keep_gradient}'"

    def penalty(self, loss: Tensor | None = None) -> Tensor:
        """Return the penalty on the gradients of the last pass, for the loss of its prediction."""
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
        parameters = [p for p in self.flow.parameters() if p.requires_grad]
        if self.keep_gradient == "norm":
            penalty = norm_penalty(loss, waypoints)
        elif self.keep_gradient == "parameters":
            penalty = parameter_penalty(loss, waypoints, parameters)
        else:
            penalty = direction_penalty(loss, waypoints, parameters, self.keep_cosine)
        return self.keep_weight * penalty

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

    def _assemble(
        self,
        start: nn.Module,
        flow: NeuralODE | StackedODE,
        sizes: tuple[int, int, int],
        options: Mapping[str, Any],
        excluded: Mapping[str, str] | None = None,
    ) -> None:
        """Set input layer, flow, readout and penalty.

        Args:
            start: From the input to the state at the start of depth.
            flow: The flow in depth.
            sizes: Features of the input, of the state that is read, and of the output.
            options: All options of the model, complete.
            excluded: Kinds of the penalty that the model does not support, and why.
        """
        self.start, self.flow = start, flow
        self._set_penalty(options, **(excluded or {}))
        self.input_size, state_size, output_size = sizes
        self.head = nn.Linear(state_size, output_size)

    @property
    def end_of_depth(self) -> float:
        """T, the end of the flow."""
        last = self.flow.segments[-1] if isinstance(self.flow, StackedODE) else self.flow
        assert isinstance(last, NeuralODE)
        return last.times[-1]

    @property
    def _ode(self) -> NeuralODE:
        assert isinstance(self.flow, NeuralODE)
        return self.flow

    def field_now(self) -> Any:
        """Return the field with its current parameters."""
        return self._ode.field

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the end of depth, (batch, state)."""
        return self.carry(self.start(x))

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the end of depth from one at its start, and further input."""
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
        with self.recording_waypoints():
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
