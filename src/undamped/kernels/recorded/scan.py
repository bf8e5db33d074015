"""`recorded_scan`: a plain loop over time, with its gradient, from recordings of some steps.

A recording reads and writes the same memory every time. So inputs are copied into it and results
out of it, chunk by chunk; the state stays there. In the backward pass a chunk is recomputed from
its stored first state and differentiated.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undamped.kernels.recorded.recorder import Recorder
from undamped.kernels.reference import State, step_by_step
from undamped.kernels.shared.operator import refuse_second_derivatives

MAX_RECORDINGS = 4
"""The most recordings of a cell, for different shapes, that are kept."""


class Inputs(NamedTuple):
    """The tensors of a pass."""

    projected: Tensor
    """(time, batch, projected)."""
    state: State
    """The state before the first step."""
    constants: State
    """The constants of all steps."""
    lengths: Tensor | None = None
    """(batch,), where sequences end."""


@dataclass(frozen=True)
class Recurrence:
    """The step that is iterated.

    Args:
        advance: Maps projected input, state and constants to the next state.
        output: Returns the output of a state.
        parameters: The other tensors that `advance` reads and is differentiated by.
        identity: The rest that a recording depends on: numbers, and the addresses of tensors.
    """

    advance: Callable[[Tensor, State, State], State]
    output: Callable[[State], Tensor]
    parameters: tuple[Tensor, ...]
    identity: Hashable

    def run(self, inputs: Inputs) -> tuple[Tensor, State]:
        """Run all steps of `projected`; steps after the end of a sequence keep its state."""
        projected, state, constants, lengths = inputs

        def advance(projected_t: Tensor, state: State) -> State:
            return self.advance(projected_t, state, constants)

        return step_by_step(advance, projected, state, lengths, output=self.output)


class RecordedLoop:
    """Recordings for one set of shapes.

    Args: recorder: The recorder. recurrence: The step that is iterated. inputs: Tensors of the
        shapes to be recorded.
    """

    @torch.inference_mode(False)  # passes with gradients use its memory too
    def __init__(self, recorder: Recorder, recurrence: Recurrence, inputs: Inputs) -> None:
        self.recorder, self.recurrence, self.steps = recorder, recurrence, recorder.steps
        projected = inputs.projected
        self.projected = projected.new_zeros(self.steps, *projected.shape[1:])
        self.state = [part.new_zeros(part.shape) for part in inputs.state]
        self.constants = [part.new_zeros(part.shape) for part in inputs.constants]
        self.remaining = None
        if inputs.lengths is not None:
            self.remaining = projected.new_zeros(projected.shape[1], dtype=torch.int64)
        with torch.no_grad():
            self.fill(self.constants, inputs.constants)
            output = recurrence.output(tuple(self.state))
        self.outputs = output.new_zeros(self.steps, *output.shape)
        self.go = recorder.record(self._forward)
        self._back: Callable[[], None] | None = None

    @torch.inference_mode(False)
    def prepare_backward(self) -> None:
        """Record the backward pass if necessary; not in the thread of a backward pass."""
        if self._back is not None:
            return
        self.grad_outputs = torch.zeros_like(self.outputs)
        self.grad_projected = torch.zeros_like(self.projected)
        self.grad_state = [torch.zeros_like(part) for part in self.state]
        self.grad_constants = [torch.zeros_like(part) for part in self.constants]
        self.grad_parameters = [torch.zeros_like(part) for part in self.recurrence.parameters]
        self.read = [True] * len(self.recurrence.parameters)
        self._back = self.recorder.record(self._backward)

    def back(self) -> None:
        """Backpropagate through the chunk that starts at `state`."""
        assert self._back is not None  # prepared by the forward pass
        self._back()

    def load(self, projected: Tensor, lengths: Tensor | None, start: int) -> None:
        """Copy a chunk of the input into the memory of the recording."""
        self.projected.copy_(projected[start : start + self.steps])
        if self.remaining is not None and lengths is not None:
            self.remaining.copy_(lengths - start)

    @staticmethod
    def fill(targets: Sequence[Tensor], values: Sequence[Tensor | None]) -> None:
        """Copy values to their targets; zeros for None."""
        for target, value in zip(targets, values, strict=True):
            target.copy_(value) if value is not None else target.zero_()

    @torch.no_grad()
    def _forward(self) -> None:
        state, constants = tuple(self.state), tuple(self.constants)
        inputs = Inputs(self.projected, state, constants, self.remaining)
        outputs, state = self.recurrence.run(inputs)
        self.outputs.copy_(outputs)
        self.fill(self.state, state)

    def _backward(self) -> None:
        with torch.enable_grad():
            parts = (self.projected, *self.state, *self.constants)
            leaves = [part.detach().requires_grad_(part.is_floating_point()) for part in parts]
            count = 1 + len(self.state)
            state, constants = tuple(leaves[1:count]), tuple(leaves[count:])
            outputs, final = self.recurrence.run(
                Inputs(leaves[0], state, constants, self.remaining)
            )
            tensors = [*leaves, *self.recurrence.parameters]
            results = zip((outputs, *final), (self.grad_outputs, *self.grad_state), strict=True)
            gradients = _gradients([(r, g) for r, g in results if r.requires_grad], tensors)
        with torch.no_grad():
            self.fill((self.grad_projected, *self.grad_state), gradients[:count])
            sums = (*self.grad_constants, *self.grad_parameters)
            for target, value in zip(sums, gradients[count:], strict=True):
                if value is not None:
                    target += value
        self.read = [value is not None for value in gradients[len(leaves) :]]


def _gradients(
    results: Sequence[tuple[Tensor, Tensor]], tensors: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of differentiable tensors; None for the rest."""
    of, weights = zip(*results, strict=True)
    required = [tensor for tensor in tensors if tensor.requires_grad]
    gradients = iter(torch.autograd.grad(of, required, weights, allow_unused=True))
    return [next(gradients) if tensor.requires_grad else None for tensor in tensors]


class RecordingWarning(RuntimeWarning):
    """A loop could not be recorded, and runs step by step."""


class Recordings:
    """The recordings of one cell; copies and pickles of it start empty."""

    def __init__(self) -> None:
        self._loops: OrderedDict[Any, RecordedLoop] = OrderedDict()
        self.refused = False

    def __reduce__(self) -> tuple[type[Recordings], tuple[()]]:
        return type(self), ()

    def get(self, recorder: Recorder, recurrence: Recurrence, inputs: Inputs) -> RecordedLoop:
        """Return the loop for these shapes and for parameters at these addresses."""
        projected = inputs.projected
        key = (
            type(recorder),
            recorder.steps,
            inputs.lengths is not None,
            projected.device,
            projected.dtype,
            projected.shape[1:],
            tuple(part.shape for part in (*inputs.state, *inputs.constants)),
            recurrence.identity,
        )
        if key not in self._loops:
            self._loops[key] = RecordedLoop(recorder, recurrence, inputs)
            while len(self._loops) > MAX_RECORDINGS:
                self._loops.popitem(last=False)
        self._loops.move_to_end(key)
        return self._loops[key]


def recorded_scan(
    recordings: Recordings, recorder: Recorder, recurrence: Recurrence, inputs: Inputs
) -> tuple[Tensor, State]:
    """Iterate through time; the steps after the last full recording run one by one.

    Args: recordings: Earlier recordings of the cell. recorder: The recorder. recurrence: The step
        that is iterated. inputs: The tensors of the pass.

    Returns:
        The outputs (time, batch, hidden), and the state after the last step.
    """
    projected, state, constants, lengths = inputs
    recorded_steps = len(projected) // recorder.steps * recorder.steps
    loop = None
    if recorded_steps and not recordings.refused:
        loop = _recorded(recordings, recorder, recurrence, inputs)
    if loop is None:
        return recurrence.run(inputs)
    tensors = (projected[:recorded_steps], *state, *constants, *recurrence.parameters)
    outputs, *final = _Recorded.apply(loop, lengths, len(state), *tensors)
    if recorded_steps == len(projected):
        return outputs, tuple(final)
    remaining = None if lengths is None else lengths - recorded_steps
    rest, last = recurrence.run(
        Inputs(projected[recorded_steps:], tuple(final), constants, remaining)
    )
    return torch.cat([outputs, rest]), last


def _recorded(
    recordings: Recordings, recorder: Recorder, recurrence: Recurrence, inputs: Inputs
) -> RecordedLoop | None:
    """Return a loop with all recordings that are needed, or None if it cannot be recorded."""
    tensors = (inputs.projected, *inputs.state, *inputs.constants, *recurrence.parameters)
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    try:
        loop = recordings.get(recorder, recurrence, inputs)
        if needs_grad:
            loop.prepare_backward()
    except RuntimeError as error:  # it synchronises, or needs too much memory
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
        chunks = range(0, len(projected), loop.steps)
        outputs = loop.outputs.new_empty(len(projected), *loop.outputs.shape[1:])
        begins = [part.new_empty(len(chunks), *part.shape) for part in loop.state]
        loop.fill(loop.state, state)
        loop.fill(loop.constants, constants)
        for number, start in enumerate(chunks):
            for begin, part in zip(begins, loop.state, strict=True):
                begin[number] = part
            loop.load(projected, lengths, start)
            loop.go()
            outputs[start : start + loop.steps] = loop.outputs
        ctx.loop, ctx.lengths, ctx.count, ctx.begins = loop, lengths, count, begins
        ctx.save_for_backward(*tensors)
        return outputs, *(part.clone() for part in loop.state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivatives()
        loop, count = ctx.loop, ctx.count
        projected, *rest = ctx.saved_tensors  # raises an error if a parameter was modified in place
        grad_projected = torch.empty_like(projected)
        loop.fill(loop.constants, rest[count : count + len(loop.constants)])
        loop.fill(loop.grad_state, grads[1:])
        for total in (*loop.grad_constants, *loop.grad_parameters):
            total.zero_()
        for number, start in reversed(list(enumerate(range(0, len(projected), loop.steps)))):
            loop.fill(loop.state, [begin[number] for begin in ctx.begins])
            loop.load(projected, ctx.lengths, start)
            loop.grad_outputs.copy_(grads[0][start : start + loop.steps])
            loop.back()
            grad_projected[start : start + loop.steps] = loop.grad_projected
        of_parameters = [
            total.clone() if read else None
            for total, read in zip(loop.grad_parameters, loop.read, strict=True)
        ]
        grad_state = [
            total.clone() if total.is_floating_point() else None
            for total in (*loop.grad_state, *loop.grad_constants)
        ]
        return None, None, None, grad_projected, *grad_state, *of_parameters
