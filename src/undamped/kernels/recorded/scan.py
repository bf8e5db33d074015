"""`recorded_scan`: a plain loop over time, with its gradient, from recordings of some steps."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.recorded.loop import STEPS, RecordedLoop, Recurrence, State
from undamped.kernels.recorded.recorder import Recorder
from undamped.kernels.shared.operator import refuse_second_derivatives

MAX_RECORDINGS = 4
"""Recordings that are kept of a cell, for different shapes."""


class RecordingWarning(RuntimeWarning):
    """A loop could not be recorded, and runs step by step."""


class Recordings:
    """The recordings of one cell; copies and pickles of it start empty."""

    def __init__(self) -> None:
        self._loops: OrderedDict[Any, RecordedLoop] = OrderedDict()
        self.refused = False

    def __reduce__(self) -> tuple[type[Recordings], tuple[()]]:
        return type(self), ()

    def get(
        self,
        recorder: Recorder,
        recurrence: Recurrence,
        projected: Tensor,
        state: State,
        constants: State,
        masked: bool,
    ) -> RecordedLoop:
        """Return the loop for these shapes and for parameters that lie where they lie."""
        key = (
            type(recorder),
            masked,
            projected.device,
            projected.dtype,
            projected.shape[1:],
            tuple(part.shape for part in (*state, *constants)),
            recurrence.identity,
        )
        if key not in self._loops:
            self._loops[key] = RecordedLoop(
                recorder, recurrence, projected, state, constants, masked
            )
            while len(self._loops) > MAX_RECORDINGS:
                self._loops.popitem(last=False)
        self._loops.move_to_end(key)
        return self._loops[key]


def recorded_scan(
    recordings: Recordings,
    recorder: Recorder,
    recurrence: Recurrence,
    projected: Tensor,
    state: State,
    constants: State,
    lengths: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Iterate through time; what is less than a recording is left is done step by step.

    Args:
        recordings: What was recorded before.
        recorder: Who records.
        recurrence: What is iterated.
        projected: (time, batch, projected).
        state: The state before the first step.
        constants: What is the same at every step.
        lengths: (batch,), where sequences end.

    Returns:
        The outputs (time, batch, hidden), and the state after the last step.
    """
    recorded_steps = len(projected) // STEPS * STEPS
    loop = None
    if recorded_steps and not recordings.refused:
        loop = _recorded(recordings, recorder, recurrence, projected, state, constants, lengths)
    if loop is None:
        return recurrence.run(projected, state, constants, lengths)
    inputs = (projected[:recorded_steps], *state, *constants, *recurrence.parameters)
    outputs, *final = _Recorded.apply(loop, lengths, len(state), *inputs)
    if recorded_steps == len(projected):
        return outputs, tuple(final)
    remaining = None if lengths is None else lengths - recorded_steps
    rest, last = recurrence.run(projected[recorded_steps:], tuple(final), constants, remaining)
    return torch.cat([outputs, rest]), last


def _recorded(
    recordings: Recordings,
    recorder: Recorder,
    recurrence: Recurrence,
    projected: Tensor,
    state: State,
    constants: State,
    lengths: Tensor | None,
) -> RecordedLoop | None:
    """Return a loop with all the recordings that are wanted, or None if it cannot be recorded."""
    tensors = (projected, *state, *constants, *recurrence.parameters)
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    try:
        loop = recordings.get(
            recorder, recurrence, projected, state, constants, lengths is not None
        )
        if needs_grad:
            loop.prepare_backward()
    except RuntimeError as error:  # a step that waits for the device, or takes too much of it
        recordings.refused = True
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        warnings.warn(
            f"the steps of this cell could not be recorded as a CUDA graph ({first}); they run one "
            "by one, which is slower.",
            RecordingWarning,
            stacklevel=2,
        )
        return None
    return loop


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loop: RecordedLoop, lengths: Tensor | None, count: int, *tensors: Tensor
    ) -> Any:
        projected, state = tensors[0].detach(), tensors[1 : 1 + count]
        constants = tensors[1 + count : 1 + count + len(loop.constants)]
        chunks = range(0, len(projected), STEPS)
        outputs = loop.outputs.new_empty(len(projected), *loop.outputs.shape[1:])
        begins = [part.new_empty(len(chunks), *part.shape) for part in loop.state]
        loop.fill(loop.state, state)
        loop.fill(loop.constants, constants)
        for number, start in enumerate(chunks):
            for begin, part in zip(begins, loop.state, strict=True):
                begin[number] = part
            loop.load(projected, lengths, start)
            loop.go()
            outputs[start : start + STEPS] = loop.outputs
        ctx.loop, ctx.lengths, ctx.count, ctx.begins = loop, lengths, count, begins
        ctx.save_for_backward(*tensors)
        return outputs, *(part.clone() for part in loop.state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivatives()
        loop, count = ctx.loop, ctx.count
        projected, *rest = ctx.saved_tensors  # which says so if a parameter has changed since
        grad_projected = torch.empty_like(projected)
        loop.fill(loop.constants, rest[count : count + len(loop.constants)])
        loop.fill(loop.grad_state, grads[1:])
        for total in (*loop.grad_constants, *loop.grad_parameters):
            total.zero_()
        for number, start in reversed(list(enumerate(range(0, len(projected), STEPS)))):
            loop.fill(loop.state, [begin[number] for begin in ctx.begins])
            loop.load(projected, ctx.lengths, start)
            loop.grad_outputs.copy_(grads[0][start : start + STEPS])
            loop.back()
            grad_projected[start : start + STEPS] = loop.grad_projected
        of_parameters = [
            total.clone() if read else None
            for total, read in zip(loop.grad_parameters, loop.read, strict=True)
        ]
        grad_state = [
            total.clone() if total.is_floating_point() else None
            for total in (*loop.grad_state, *loop.grad_constants)
        ]
        return None, None, None, grad_projected, *grad_state, *of_parameters
