"""The step of a model as a function of tensors, for tracing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.export.subject import Subject
from undamped.models.irregular.model import TimestampedModel
from undamped.models.irregular.network import JumpNetwork
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import StreamingModel
from undamped.models.timestamped import gap_feature
from undamped.nn.sequence_tensors import join_features
from undamped.nn.unitary import UnitaryCell


@dataclass(frozen=True)
class Step:
    """The step of a model.

    Args:
        function: Takes an input of the network (1, features) and then the parts of the state; it
            returns the answer and the next state.
        width: Number of features of the input.
        state: The initial state by name.
        symbols: A table of vectors by symbol, where samples are symbols.
        elapsed: Whether the state depends on the time since the last sample, which is an input.
    """

    function: Callable[..., list[Tensor]]
    width: int
    state: dict[str, Tensor]
    symbols: Tensor | None = None
    elapsed: bool = False


def step_of(subject: Subject) -> Step:
    """Return the step of a model; a model that C code cannot express is refused."""
    model = copy.deepcopy(subject.model).cpu().float().eval()
    if isinstance(model, SequenceModel):
        return _sequence_step(subject, model)
    if isinstance(model, TimestampedModel):
        return _timestamped_step(subject, model)
    if isinstance(model, StreamingModel):
        raise OptionError(f"There is no C code for {type(model).__name__}. Use 'undamped stream'.")
    raise OptionError(
        f"{type(model).__name__} reads whole sequences and cannot follow a stream, so that it "
        "cannot be exported to C. Train the model 'bank', which can."
    )


def _sequence_step(subject: Subject, model: SequenceModel) -> Step:
    network = model.network
    if network.bidirectional:
        raise OptionError(
            "A bidirectional network needs the end of a sequence and cannot be exported to C. "
            "Train it with model.bidirectional=false."
        )
    if network.cell_class.memory_plan.state_grows:
        raise OptionError(
            f"The state of {type(network).__name__} grows with every sample, and C code has a "
            "fixed amount of memory. Use 'undamped stream', or the network rellstm."
        )
    for cell in network.cells:
        if isinstance(cell, UnitaryCell):
            cell.structured = False
    cells = [network.cell(layer) for layer in range(network.num_layers)]
    initial = network.initial_state(1)
    parts = (initial,) if isinstance(initial, Tensor) else initial
    names = [name.replace(" ", "_").replace("-", "_") for name in network.cell(0).state_names]
    state = {
        f"{name}_{layer}": part[layer].detach().float()
        for layer in range(len(cells))
        for name, part in zip(names, parts, strict=True)
    }
    with torch.no_grad():
        constants = [cell.constants() for cell in cells]
    averaged = model.readout == "mean" and not model.at_times
    if averaged:
        state |= _empty_average(network.output_size)
    head = _head_of(model, subject.preparation)

    def step(x: Tensor, *state: Tensor) -> list[Tensor]:
        outputs, after = [x], []
        for layer, cell in enumerate(cells):
            source = join_features([outputs[i] for i in network.layer_sources(layer + 1)])
            before = state[layer * len(names) : (layer + 1) * len(names)]
            after.append(cell.advance(cell.project(source), before, constants[layer]))
            outputs.append(cell.output(after[-1]))
        features, sums = outputs[-1], []
        if averaged:
            features, sums = _average(features, state[-3:])
        final = [part for parts in after for part in parts]
        return [_answer(subject, head(features)), *final, *sums]

    symbols = None
    if model.input_kind == "symbols":
        symbols = torch.eye(model.input_size)
        if model.embedding is not None:
            symbols = model.embedding.weight.detach()
    return Step(step, network.input_size, state, symbols)


def _head_of(model: SequenceModel, preparation: Preparation | None) -> Callable[[Tensor], Tensor]:
    if not model.at_times:
        return model.head
    horizon = 1 if preparation is None else preparation.horizon
    times = torch.arange(1, horizon + 1, dtype=torch.float64)
    since = gap_feature(times, model.head.gap).float().unsqueeze(1)
    inner, readout = model.head.hidden, model.head.readout

    def head(features: Tensor) -> Tensor:
        # The time since the last sample is a constant at each query time.
        rows = [torch.cat([features, ago.unsqueeze(0)], dim=-1) for ago in since]
        return torch.cat([readout(torch.tanh(inner(row))) for row in rows], dim=-1)

    return head


def _timestamped_step(subject: Subject, model: TimestampedModel) -> Step:
    network: Any = model.network
    if not isinstance(network, JumpNetwork) or model.at_times or model.horizon:
        raise OptionError(
            f"{type(network).__name__} as trained here has no C code: only networks that flow over "
            "a gap and jump at a sample have, with one answer per sample. Use 'undamped stream'."
        )
    masked = "observed" in subject.reads
    initial = network.initial_state(1, torch.zeros(1))
    state = {f"part_{at}": part for at, part in enumerate(initial[:-1])}
    averaged = model.readout == "mean"
    if averaged:
        state |= _empty_average(network.output_size)
    width, parts = model.input_size, len(initial) - 1
    with torch.no_grad():
        constants = network.constants()

    def step(x: Tensor, *state: Tensor) -> list[Tensor]:
        values, gap = x[:, :width], x[:, -1].double()
        mask = x[:, width : 2 * width] > 0 if masked else torch.ones(1, width).bool()
        sample = torch.where(mask, values, 0.0)
        before = state[:parts]
        projected = network.project(
            sample.unsqueeze(0), mask.unsqueeze(0), gap.unsqueeze(0), before
        )
        flowed = network.flow(before, gap)
        after = network.jump(projected[0], flowed, constants)
        if masked:
            alive = mask.any(-1, keepdim=True)
            pairs = zip(after, flowed, strict=True)
            after = tuple(torch.where(alive, new, old) for new, old in pairs)
        features, sums = network.output(after), []
        if averaged:
            features, sums = _average(features, state[-3:])
        return [_answer(subject, model.head(features)), *after, *sums]

    return Step(step, width * (1 + masked) + 1, state, elapsed=True)


def _empty_average(size: int) -> dict[str, Tensor]:
    zeros = torch.zeros(1, size)
    return {"total": zeros, "rest": zeros, "count": torch.zeros(1, dtype=torch.float64)}


def _average(features: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    """Return the mean of all outputs, and the state of the sum.

    The sum is compensated (Kahan), since double precision is slow on small devices. The number of
    samples is in double precision, which counts further than any device runs.
    """
    total, rest, count = state
    addend = features - rest
    larger, counted = total + addend, count + 1
    rest = (larger - total) - addend
    return larger * (1 / counted).float(), [larger, rest, counted]


def _answer(subject: Subject, outputs: Tensor) -> Tensor:
    """Return probabilities of classes, or numbers in original units."""
    if subject.classes is not None:
        return torch.softmax(outputs, -1)
    prepared = subject.preparation
    if prepared is None:
        return outputs
    mean, std = torch.tensor(prepared.target_mean), torch.tensor(prepared.target_std)
    if prepared.kind == "forecast":
        outputs = outputs.reshape(prepared.horizon, len(prepared.forecast), -1)
        mean, std = mean.unsqueeze(1), std.unsqueeze(1)
    return outputs * std + mean
