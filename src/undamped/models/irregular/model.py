"""A task model around a network of timestamped samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.irregular.network import Parts, TimestampedNetwork
from undamped.models.task_model import (
    LossOutput,
    Readout,
    Sample,
    StreamingModel,
    TaskLoss,
    needed_target_times,
    readout_for,
    refuse_unfit,
)
from undamped.models.timestamped import observed_points
from undamped.nn.sequence_tensors import padding_mask

FORESIGHT = 1.0
"""Default of `foresight`, for tasks that allow it."""


class TimestampedModel(StreamingModel):
    """Timestamped samples → network → linear readout.

    The readout reads the state after the last sample, after every sample, their mean, or the state
    at query times, to which it flows from the last sample before.

    Args:
        network: The registry name of the network, or a network.
        input_size: Features of a sample.
        output_size: Features of a prediction.
        readout: Which states the readout reads, if predictions are not at query times.
        at_times: Whether predictions are at query times.
        horizon: Number of steps of a forecast, one usual gap apart; a prediction then holds the
            values of all of them.
        foresight: Weight in training of the one-step forecast of every sample, for predictions at
            query times of the features that are read.
        network_options: Options of the network, such as hidden_size.

    Example:
        >>> model = TimestampedModel("ode-rnn", 3, 2, hidden_size=8)
        >>> model(Batch(torch.randn(20, 4, 3), times=torch.rand(20, 4).cumsum(0))).shape
        torch.Size([4, 2])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed", "target_times"})
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number", "trajectory"})
    input_kinds = frozenset[InputKind]({"vectors", "states"})
    sequential = True
    carries_on = True
    settable: ClassVar[tuple[str, ...]] = ("readout", "foresight")
    """Options of this model, which every such network accepts too."""

    def __init__(
        self,
        network: str | TimestampedNetwork,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        readout: Readout = "last",
        at_times: bool = False,
        horizon: NonNegativeInt = 0,
        foresight: NonNegativeFloat = 0.0,
        **network_options: Any,
    ) -> None:
        super().__init__()
        self.foresight = foresight
        self.input_size, self.readout = input_size, readout
        self.at_times, self.horizon = at_times, horizon
        self.network: Any = network  # a TimestampedNetwork
        if isinstance(network, str):
            self.network = models.build(network, input_size=input_size, **network_options)
        self.head: nn.Module = nn.Linear(self.network.output_size, output_size // max(1, horizon))

    @classmethod
    def for_task(cls, shape: TaskShape, name: str, options: Mapping[str, Any]) -> TimestampedModel:
        """Build the model for tasks of a shape with the network called `name`."""
        refuse_unfit(name, cls, shape)
        foresees = shape.answer == "trajectory" and shape.same_channels
        if "foresight" in options and not foresees:
            raise OptionError(
                "model.foresight applies only to tasks that predict the features of a sample at "
                "other times. Leave it out."
            )
        for option in ("missing", "gap"):
            if option in options:
                raise OptionError(f"{name}.{option} is set by the task. Leave it out.")
        return cls(
            name,
            shape.input_size,
            shape.output_size,
            readout=readout_for(shape, options, shape.answer == "trajectory" or shape.horizon > 0),
            at_times=shape.answer == "trajectory",
            horizon=shape.horizon,
            foresight=options.get("foresight", FORESIGHT) if foresees else 0.0,
            missing="observed" in shape.needs,
            gap=shape.clock.gap if shape.clock is not None else 1.0,
            **{key: value for key, value in options.items() if key not in cls.settable},
        )

    def run(self, batch: Batch, state: Parts | None = None) -> tuple[Tensor, Parts]:
        """Return the predictions and the final state.

        Predictions are (batch, output), (time, batch, output) with `readout="every"`, or
        (outputs, batch, output) at the target times of a batch.
        """
        batch = batch.expanded()
        return self._predict(batch, *self._states(batch, state), state)

    def _states(self, batch: Batch, state: Parts | None = None) -> tuple[Parts, Parts]:
        """Return the state after every sample, and the final one."""
        x = batch.inputs.to(self.dtype)
        return self.network.states(x, batch.times, batch.observed, batch.lengths, state)

    def objective(self, batch: Batch, loss: TaskLoss, state: Parts | None = None) -> LossOutput:
        """Return the loss of the prediction, and of the one-step forecast of every sample."""
        if not self.foresight or len(batch.inputs) < 2:
            return super().objective(batch, loss, state)
        batch = batch.expanded()
        states, final = self._states(batch, state)
        prediction, final = self._predict(batch, states, final, state)
        value = loss(prediction, batch)
        return LossOutput(
            value + self.foresight * self._forecast_error(batch, states), value, prediction, final
        )

    def _forecast_error(self, batch: Batch, states: Parts) -> Tensor:
        """Return the mean squared error of the forecast of every sample from those before it.

        All gaps of all sequences are solved at once, since the states before them are known.
        """
        network, points = self.network, observed_points(batch, self.network.gap, self.dtype)
        gaps = (torch.diff(points.times, dim=0) / network.gap).clamp(min=0)
        before = tuple(part[:-1].flatten(0, 1) for part in states)
        outputs = network.output(network.flow(before, gaps.flatten()))
        errors = self.head(outputs).view_as(points.values[1:]) - points.values[1:]
        mask = points.mask[1:]
        return torch.where(mask, errors, 0.0).square().sum() / mask.sum().clamp(min=1)

    def _predict(
        self, batch: Batch, states: Parts, final: Parts, state: Parts | None
    ) -> tuple[Tensor, Parts]:
        """Return the predictions from the states after the samples."""
        x, lengths, network = batch.inputs, batch.lengths, self.network
        if self.at_times or self.horizon:
            start = network.initial_state(x.shape[1], states[0]) if state is None else state
            times = network.timestamps(x, batch.times, start[-1], fresh=state is None)
            queries = self._query_times(batch, final[-1])
            outputs = self.head(network.at(states, times, lengths, queries, start))
            return (outputs.transpose(0, 1).flatten(1) if self.horizon else outputs), final
        outputs = network.output(states)
        if self.readout == "every":
            return self.head(outputs), final
        if self.readout == "last":
            return self.head(network.output(final[:-1])), final
        return self.head(_mean(outputs, lengths)), final

    def _query_times(self, batch: Batch, last: Tensor) -> Tensor:
        """Return the times of the predictions, (outputs, batch)."""
        if self.horizon:
            return last + self.network.gap * self._steps_ahead(last)
        return needed_target_times(batch)

    def _steps_ahead(self, like: Tensor) -> Tensor:
        return torch.arange(1, self.horizon + 1, device=like.device).unsqueeze(1)

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield the states after the samples, then the prediction."""
        yield "the states of network", self._states(batch)[0]
        yield "the output of head", self.run(batch)[0]

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, Any]:
        at_times = self.at_times or self.horizon
        averaged = self.readout == "mean" and not at_times
        total, count = 0.0, 0
        if averaged and state is not None:
            state, total, count = state
        x = sample.x.to(self.dtype)
        output, state = self.network.step(x, state, sample.dt, sample.observed)
        if averaged:
            # In double precision, since a stream may be long.
            total, count = total + output.double(), count + 1
            return self.head((total / count).to(output.dtype)), (state, total, count)
        offsets = sample.offsets
        if self.horizon:
            offsets = self.network.gap * self._steps_ahead(output).squeeze(1)
        if not at_times or offsets is None:
            return self.head(output), state
        now = state[-1]
        queries = now + offsets.to(now).unsqueeze(1)
        parts = tuple(part.unsqueeze(0) for part in state[:-1])
        outputs = self.head(self.network.at(parts, now.unsqueeze(0), None, queries, state))
        return (outputs.transpose(0, 1).flatten(1) if self.horizon else outputs), state


def _mean(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return outputs.mean(0)
    total = outputs.masked_fill(padding_mask(outputs, lengths), 0).sum(0)
    return total / lengths.to(outputs.dtype).unsqueeze(-1)
