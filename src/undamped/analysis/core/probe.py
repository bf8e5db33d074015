"""The input of an instrument: a model, inputs for it, and possibly the task it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.analysis.core.time_axis import layout_of
from undamped.models.physics.state_model import StateModel
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.nn import Recurrent


class InapplicableError(OptionError):
    """An instrument does not apply to a model; the message gives the reason."""


@dataclass(frozen=True)
class Probe:
    """A model to be measured.

    Args:
        model: A network or model of this library, a module of torch, or any other module.
        inputs: Its inputs.
        name: Name of the model in figures and sentences.
        task: The task whose data the inputs are, if there is one.
        loss: A function of the model's output that returns a scalar, if there is one.
        fraction: Where a gradient counts as vanished; see `gradient_flow`.
        seed: Seed of all random numbers.
        memory: Whether to measure peak memory, which takes seconds.
        full_model: The model as its task calls it, where `model` takes encoded inputs.
        axis: Whether the batch comes first in the inputs; detected if it is None.
    """

    model: nn.Module
    inputs: Tensor
    name: str = ""
    task: Any = None
    loss: Callable[[Tensor], Tensor] | None = None
    fraction: float = 0.01
    seed: int = 0
    memory: bool = False
    full_model: nn.Module | None = None
    axis: bool | None = None

    @cached_property
    def network(self) -> nn.Module:
        """The network of a model, without input encoding and readout."""
        wrapped = isinstance(self.model, SequenceModel | PointModel)
        return self.model.network if wrapped else self.model  # type: ignore[return-value]

    @property
    def differentiable(self) -> bool:
        """Whether the model is trained by gradients; ridge regressions and trees are not."""
        return bool(getattr(self.full_model or self.model, "differentiable", True))

    @property
    def moves(self) -> bool:
        """Whether the model is one of a dynamical system: it integrates over time, not depth."""
        return isinstance(self.network, StateModel)

    @property
    def in_depth(self) -> bool:
        """Whether the model takes single vectors and its state flows through layers or an ODE."""
        from undamped.analysis.gradient_flow import flows_in_depth

        return self.inputs.dim() == 2 and not self.moves and flows_in_depth(self.model)

    @cached_property
    def batch_first(self) -> bool:
        """Whether the model takes (batch, time, features)."""
        return layout_of(self.model, self.inputs, self.axis).batch_first

    @property
    def network_axis(self) -> bool | None:
        """The caller's `axis` for the network's inputs; None if the network is inside a model."""
        return self.axis if self.network is self.model else None

    @property
    def length(self) -> int:
        """Number of steps of the inputs."""
        return self.inputs.shape[1 if self.batch_first and self.inputs.dim() == 3 else 0]

    def recurrent(self) -> Recurrent:
        """Return the network if it is a `Recurrent`; raise InapplicableError otherwise."""
        if not isinstance(self.network, Recurrent):
            raise InapplicableError("it is not a recurrent network of this library")
        return self.network

    @property
    def of_images(self) -> bool:
        """Whether the inputs are sequences of images, (time, batch, channels, height, width)."""
        return self.inputs.dim() == 5

    def require_sequences(self) -> None:
        """Raise InapplicableError for a model of single vectors, or of a few images."""
        if self.in_depth:
            raise InapplicableError("it takes single vectors, not sequences")
        if self.of_images:
            raise InapplicableError("it takes a few images, not a long sequence")
