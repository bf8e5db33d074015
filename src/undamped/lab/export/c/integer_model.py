"""A model in integers, as its C code computes it, to score it in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped.lab.export.c.integer import IntegerGraph, Ranges, fixed_tensor, integer_graph
from undamped.lab.export.c.interpreter import Interpreter
from undamped.lab.export.c.steps import Step, step_of
from undamped.lab.export.c.trace import trace
from undamped.lab.export.subject import Subject
from undamped.lab.streams import StepStream
from undamped.models.sequence_model import SequenceModel


@dataclass(frozen=True)
class IntegerStep:
    """The step of a model in integers.

    Args:
        step: The step in floating point.
        graph: Its graph in integers.
    """

    step: Step
    graph: IntegerGraph

    def initial(self) -> dict[str, Tensor]:
        """Return the initial state as integers, by name."""
        bits = self.graph.bits
        return {name: fixed_tensor(part, bits[name]) for name, part in self.step.state.items()}


def integer_step(subject: Subject, batches: Iterable[Batch]) -> IntegerStep:
    """Return the step of a model in integers.

    Args:
        subject: The model with its preparation.
        batches: Calibration data.
    """
    model = subject.model
    refusal = " has no integer form. Export it without --integer."
    if not isinstance(model, SequenceModel):
        raise OptionError(type(model).__name__ + refusal)
    for applies, text in (
        (model.at_times, "A model with predictions at query times"),
        (model.readout == "mean", "The mean of outputs (readout=mean)"),
    ):
        if applies:
            raise OptionError(text + refusal)
    step = step_of(subject)
    nodes = trace(step.function, {"x": torch.zeros(1, step.width), **step.state})
    ranges = Ranges(nodes, step.state)
    encoder = copy.deepcopy(model).cpu().float().eval()
    with torch.inference_mode():
        for batch in batches:
            ranges.observe(encoder.encode(batch.cast(torch.float32)), batch.lengths)
        return IntegerStep(step, integer_graph(nodes, list(step.state), ranges.ranges))


def integer_model(subject: Subject, integer: IntegerStep) -> Any:
    """Return a copy of a model that predicts and streams in integers."""
    copied: Any = copy.deepcopy(subject.model).cpu().float().eval()
    copied.network, copied.head = IntegerNetwork(subject, integer), nn.Identity()
    vars(copied)["stream"] = lambda offsets=None: StepStream(copied, offsets)
    return copied


class IntegerNetwork(nn.Module):
    """A recurrent network with its readout in integers; its outputs are those of the readout.

    Args:
        subject: The model with its preparation.
        integer: Its step in integers.
    """

    bidirectional = False
    mean = None  # `integer_step` refuses this readout

    def __init__(self, subject: Subject, integer: IntegerStep) -> None:
        super().__init__()
        self._subject, self._graph = subject, integer.graph
        self._initial = integer.initial()
        self._interpreter = Interpreter(integer.graph.outputs)
        self.unused = nn.Parameter(torch.zeros(1))  # the scores ask a parameter for its device

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs after a sample (batch, features), and the next state."""
        if state is None:
            state = [part.long().expand(len(x), *part.shape) for part in self._initial.values()]
        inputs = {"x": fixed_tensor(x, self._graph.bits["x"]).long()}
        inputs |= dict(zip(self._initial, state, strict=True))
        answer, *state = self._interpreter(inputs)
        answer = answer.double().reshape(len(x), -1) * 2.0**-self._graph.answer_bits
        return self._outputs(answer), state

    def _outputs(self, answer: Tensor) -> Tensor:
        """Return the outputs of the readout for answers."""
        if self._subject.classes is not None:
            return answer.clamp_min(2.0**-31).log().float()
        prepared = self._subject.preparation
        if prepared is None:
            return answer.float()
        mean, std = np.array(prepared.target_mean), np.array(prepared.target_std)
        if prepared.kind == "forecast":
            repeats = answer.shape[1] // (prepared.horizon * len(mean))
            mean, std = (
                np.tile(np.repeat(part, repeats), prepared.horizon) for part in (mean, std)
            )
        return ((answer - torch.from_numpy(mean)) / torch.from_numpy(std)).float()

    def forward(self, x: Tensor, state: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs at all steps (time, batch, outputs), and the last state."""
        outputs = []
        for sample in x:
            output, state = self.step(sample, state)
            outputs.append(output)
        return torch.stack(outputs), state

    def last(self, x: Tensor, state: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs at the end of each sequence, and the last state."""
        outputs, state = self(x, state)
        end = torch.full((x.shape[1],), len(x)) if lengths is None else lengths
        return outputs[end - 1, torch.arange(x.shape[1])], state
