"""What an instrument is given: a model, an input for it, and perhaps the task it was trained on."""

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
    """An instrument has nothing to see in a model; the message says why."""


@dataclass(frozen=True)
class Probe:
    """A model to be measured.

    Args:
        model: One of our networks or models, a module of torch, or one of a user.
        inputs: What it takes.
        name: What to call it.
        task: The task whose data the inputs are, if there is one.
        loss: A function of the answer that returns one number, if there is one.
        fraction: Where a gradient counts as lost.
        seed: Seed of whatever an instrument draws.
        memory: Whether to measure peak memory, which takes seconds.
        whole: The model as its task asks it, where `model` is only what stands behind its inputs.
        axis: Whether the batch comes first in the inputs, where the caller says so.
    """

    model: nn.Module
    inputs: Tensor
    name: str = ""
    task: Any = None
    loss: Callable[[Tensor], Tensor] | None = None
    fraction: float = 0.01
    seed: int = 0
    memory: bool = False
    whole: nn.Module | None = None
    axis: bool | None = None

    @cached_property
    def network(self) -> nn.Module:
        """The network of a whole model, without what encodes its input and reads its output."""
        whole = isinstance(self.model, SequenceModel | PointModel)
        return self.model.network if whole else self.model  # type: ignore[return-value]

    @property
    def differentiable(self) -> bool:
        """Whether the model is trained by gradients; ridge fits, trees and the like are not."""
        return bool(getattr(self.whole or self.model, "differentiable", True))

    @property
    def moves(self) -> bool:
        """Whether the model is one of a system that moves: what it solves is time, not depth."""
        return isinstance(self.network, StateModel)

    @property
    def in_depth(self) -> bool:
        """Whether the model reads single vectors and its state flows through layers or an ODE."""
        from undamped.analysis.depth_flow import flows_in_depth

        return self.inputs.dim() == 2 and not self.moves and flows_in_depth(self.model)

    @cached_property
    def batch_first(self) -> bool:
        """Whether the model takes (batch, time, features)."""
        return layout_of(self.model, self.inputs, self.axis).batch_first

    @property
    def network_axis(self) -> bool | None:
        """What the caller says of the network's own inputs, where it is not inside a model."""
        return self.axis if self.network is self.model else None

    @property
    def length(self) -> int:
        """Number of steps of the inputs."""
        return self.inputs.shape[1 if self.batch_first and self.inputs.dim() == 3 else 0]

    def recurrent(self) -> Recurrent:
        """Return the network if it is one of our recurrent ones, or say that it is not."""
        if not isinstance(self.network, Recurrent):
            raise InapplicableError("it has no recurrent cells of ours")
        return self.network

    @property
    def of_pictures(self) -> bool:
        """Whether the inputs are pictures in sequence, (time, batch, channels, height, width)."""
        return self.inputs.dim() == 5

    def in_time(self) -> None:
        """Refuse a model whose depth is its only time, and one of few whole pictures."""
        if self.in_depth:
            raise InapplicableError("it reads single vectors, not sequences")
        if self.of_pictures:
            raise InapplicableError("it reads a few pictures, not a long sequence")
