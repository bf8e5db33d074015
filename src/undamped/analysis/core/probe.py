"""The input of an instrument: a model, inputs for it, and possibly the task it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis.core.time_axis import layout_of
from undamped.models.physics.state_model import StateModel
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import TaskModel
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


class WithBatch(nn.Module):
    """A model together with the times, lengths and masks of a batch, called with inputs alone.

    Args:
        model: The model.
        batch: The batch whose times, lengths and masks every call uses.
    """

    batch_first = False

    def __init__(self, model: TaskModel, batch: Batch) -> None:
        super().__init__()
        self.model = model
        self.batch: Any = batch
        self.input_size = batch.inputs.shape[-1]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs for other inputs of the same shape."""
        if inputs.shape != self.batch.inputs.shape:
            raise ShapeError(
                f"inputs must have the shape of the batch, {tuple(self.batch.inputs.shape)}, got "
                f"{tuple(inputs.shape)}. Measure the model on data of its task."
            )
        return self.model(self.batch._replace(inputs=inputs))


def for_instruments(model: nn.Module, batch: Batch) -> tuple[nn.Module, Tensor]:
    """Return a model that is called with one tensor, and that tensor.

    To a recurrent network, times and missing values are features, which are encoded here. Any
    other model that uses them keeps those of the batch.

    Args:
        model: A model of a task, or any module.
        batch: A batch of the task.
    """
    batch = batch.expanded()
    x = batch.inputs
    if isinstance(model, SequenceModel) and model.reads:
        return model.on_features(), model.encode(batch).detach()
    if x.is_floating_point():
        x = x.to(next(p.dtype for p in model.parameters() if p.is_floating_point()))
    if isinstance(model, TaskModel) and any(
        part is not None for part in (batch.times, batch.observed, batch.target_times)
    ):
        if batch.observed is not None and x.is_floating_point():
            x = x.masked_fill(~batch.observed, 0)
        return WithBatch(model, batch._replace(inputs=x)), x
    return model, x
