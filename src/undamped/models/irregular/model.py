"""A whole model around a network that knows when its samples came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.irregular.network import Parts, StampedNetwork
from undamped.models.latent.points import seen_points
from undamped.models.task_model import Aim, StreamingModel, TaskLoss, refuse_unfit

Readout = Literal["last", "every", "mean"]
FORESIGHT = 1.0
"""What `foresight` is where it can be."""


class StampedModel(StreamingModel):
    """Samples at times of their own → network → linear readout.

    The readout sees the state after the last sample, after every sample, their mean, or the state
    at the times that a batch asks for: flowed there from the last sample before.

    Args:
        network: The registry name of the network, or a network.
        input_size: Features of a sample.
        output_size: Features of an answer.
        readout: Which states the readout sees, where answers are not asked for by time.
        at_times: Whether answers are asked for by time.
        horizon: How many usual gaps ahead answers are, where they are values to come at regular
            steps; an answer then holds the values of all of them.
        foresight: Where answers are asked for by time and are of the features that are read: how
            much it counts in training, beside what is asked for, to foresee every sample from
            those before it. A series then teaches with all its samples and not with a few.
        network_options: The options of the network, hidden_size among them.

    Example:
        >>> model = StampedModel("ode-rnn", 3, 2, hidden_size=8)
        >>> model(Batch(torch.randn(20, 4, 3), times=torch.rand(20, 4).cumsum(0))).shape
        torch.Size([4, 2])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed", "target_times"})
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number", "trajectory"})
    input_kinds = frozenset[InputKind]({"vectors", "states"})
    sequential = True
    carries_on = True
    settable: ClassVar[tuple[str, ...]] = ("readout", "foresight")
    """Options of the model around a network, which every such network accepts."""

    def __init__(
        self,
        network: str | StampedNetwork,
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
        self.network: Any = network  # a StampedNetwork
        if isinstance(network, str):
            self.network = models.build(network, input_size=input_size, **network_options)
        self.head: nn.Module = nn.Linear(self.network.output_size, output_size // max(1, horizon))

    @classmethod
    def for_task(cls, shape: TaskShape, name: str, options: Mapping[str, Any]) -> StampedModel:
        """Build the model that answers tasks of a shape with the network called `name`."""
        refuse_unfit(name, cls, shape)
        asked = options.get("readout")
        by_time = shape.answer == "trajectory" or shape.horizon > 0
        if by_time and asked is not None:
            raise OptionError(
                explain(
                    "model.readout",
                    expected="none, since answers are asked for by their times",
                    got=f"'{asked}'",
                    remedy="Leave it out.",
                )
            )
        foresees = shape.answer == "trajectory" and shape.same_channels
        if "foresight" in options and not foresees:
            raise OptionError(
                explain(
                    "model.foresight",
                    expected="none, since answers are not the features of a sample at other times",
                    got=options["foresight"],
                    remedy="Leave it out.",
                )
            )
        for decided in ("missing", "gap"):
            if decided in options:
                raise OptionError(
                    f"{name}.{decided}: expected to be left out, got a value. The task sets it."
                )
        return cls(
            name,
            shape.input_size,
            shape.output_size,
            readout=asked or shape.readout,
            at_times=shape.answer == "trajectory",
            horizon=shape.horizon,
            foresight=options.get("foresight", FORESIGHT) if foresees else 0.0,
            missing="observed" in shape.needs,
            gap=shape.clock.gap if shape.clock is not None else 1.0,
            **{key: value for key, value in options.items() if key not in cls.settable},
        )

    def run(self, batch: Batch, state: Parts | None = None) -> tuple[Tensor, Parts]:
        """Return the answers and the final state.

        Answers are (batch, output), (time, batch, output) with `readout="every"`, or
        (outputs, batch, output) at the times a batch asks for.
        """
        batch = batch.expanded()
        x, lengths, network = batch.inputs.to(self.dtype), batch.lengths, self.network
        states, final = network.states(x, batch.times, batch.observed, lengths, state)
        return self._answer(batch, states, final, state)

    def objective(self, batch: Batch, loss: TaskLoss, state: Parts | None = None) -> Aim:
        """Return the loss of what is asked for, and of every sample foreseen from those before."""
        if not self.foresight or len(batch.inputs) < 2:
            return super().objective(batch, loss, state)
        batch = batch.expanded()
        x = batch.inputs.to(self.dtype)
        states, final = self.network.states(x, batch.times, batch.observed, batch.lengths, state)
        prediction, final = self._answer(batch, states, final, state)
        value = loss(prediction, batch)
        return Aim(value + self.foresight * self._missed(batch, states), value, prediction, final)

    def _missed(self, batch: Batch, states: Parts) -> Tensor:
        """Return the mean square by which samples differ from what was foreseen of them.

        All gaps of all sequences are flowed over at once, since the states before them are known.
        """
        network, seen = self.network, seen_points(batch, self.network.gap, self.dtype)
        gaps = (torch.diff(seen.times, dim=0) / network.gap).clamp(min=0)
        before = tuple(part[:-1].flatten(0, 1) for part in states)
        there = network.output(network.flow(before, gaps.flatten()))
        errors = self.head(there).view_as(seen.values[1:]) - seen.values[1:]
        known = seen.known[1:]
        return torch.where(known, errors, 0.0).square().sum() / known.sum().clamp(min=1)

    def _answer(
        self, batch: Batch, states: Parts, final: Parts, state: Parts | None
    ) -> tuple[Tensor, Parts]:
        """Return the answers from the states after the samples."""
        x, lengths, network = batch.inputs, batch.lengths, self.network
        if self.at_times or self.horizon:
            start = network.initial_state(x.shape[1], states[0]) if state is None else state
            times = network.stamps(x, batch.times, start[-1], fresh=state is None)
            asked = self._asked(batch, final[-1])
            answers = self.head(network.at(states, times, lengths, asked, start))
            return (self._in_one(answers) if self.horizon else answers), final
        outputs = network.output(states)
        if self.readout == "every":
            return self.head(outputs), final
        if self.readout == "last":
            return self.head(network.output(final[:-1])), final
        return self.head(_mean(outputs, lengths)), final

    def _asked(self, batch: Batch, last: Tensor) -> Tensor:
        """Return when answers are asked for, (outputs, batch)."""
        if self.horizon:
            return last + self.network.gap * self._ahead(last)
        if batch.target_times is None:
            raise ShapeError(
                "batch.target_times: expected a tensor, got none. The model was built to answer at "
                "given times."
            )
        return batch.target_times

    def _ahead(self, like: Tensor) -> Tensor:
        return torch.arange(1, self.horizon + 1, device=like.device).unsqueeze(1)

    def _in_one(self, answers: Tensor) -> Tensor:
        """Put the values to come (horizon, batch, …) side by side, (batch, horizon · …)."""
        return answers.transpose(0, 1).flatten(1)

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through the states after the samples, then the answer."""
        x = batch.inputs.to(self.dtype)
        states, _ = self.network.states(x, batch.times, batch.observed, batch.lengths)
        yield "the states of network", states
        yield "the output of head", self.run(batch)[0]

    def step(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | float | None = None,
        *,
        observed: Tensor | None = None,
        ahead: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Take one sample of a stream (batch, input); return the answer so far and the state.

        Args:
            x: The sample.
            state: What the step before returned.
            dt: The time since the sample before, (batch,) or a number; for the first since time 0.
            observed: (batch, input) what was measured.
            ahead: (outputs,) how long after the sample answers are asked for, of a model that
                answers at given times: (outputs, batch, output) is returned then; at the moment
                of the sample if none are given.
        """
        if self.readout == "mean" and not (self.at_times or self.horizon):
            return self._step_of_mean(x, state, dt, observed)
        output, state = self.network.step(x.to(self.dtype), state, dt, observed)
        if not self.at_times and not self.horizon:
            return self.head(output), state
        if self.horizon:
            ahead = self.network.gap * self._ahead(output).squeeze(1)
        if ahead is None:
            return self.head(output), state
        now = state[-1]
        asked = now + ahead.to(now).unsqueeze(1)
        parts = tuple(part.unsqueeze(0) for part in state[:-1])
        answers = self.head(self.network.at(parts, now.unsqueeze(0), None, asked, state))
        return (self._in_one(answers) if self.horizon else answers), state

    def _step_of_mean(
        self, x: Tensor, state: Any, dt: Tensor | float | None, observed: Tensor | None
    ) -> tuple[Tensor, Any]:
        own, total, count = (None, 0.0, 0) if state is None else state
        output, own = self.network.step(x.to(self.dtype), own, dt, observed)
        # In double precision: a stream may go on for longer than single precision can count.
        total, count = total + output.double(), count + 1
        return self.head((total / count).to(output.dtype)), (own, total, count)


def _mean(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return outputs.mean(0)
    steps = torch.arange(len(outputs), device=outputs.device).unsqueeze(1)
    kept = outputs.masked_fill((steps >= lengths).unsqueeze(-1), 0)
    return kept.sum(0) / lengths.to(outputs.dtype).unsqueeze(-1)
