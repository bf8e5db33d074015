"""Some steps of a plain loop on memory of their own, to be recorded: forward, and with gradients.

A recording reads and writes the same memory every time. So inputs are copied into it and results
out of it, chunk by chunk, and the state stays where it is from one chunk to the next. Going back, a
chunk is run again from the state it began with, which was kept, and differentiated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.recorded.recorder import Recorder

State = tuple[Tensor, ...]
STEPS = 32
"""Steps of a recording."""


@dataclass(frozen=True)
class Recurrence:
    """What is iterated.

    Args:
        advance: Makes a step: what is projected, the state and the constants to the next state.
        output: What is seen of a state.
        parameters: What `advance` may read beside its arguments, and be differentiated by.
        identity: What a recording has in it and cannot be told: numbers, and where tensors lie.
    """

    advance: Callable[[Tensor, State, State], State]
    output: Callable[[State], Tensor]
    parameters: tuple[Tensor, ...]
    identity: Hashable

    def run(
        self, projected: Tensor, state: State, constants: State, remaining: Tensor | None
    ) -> tuple[Tensor, State]:
        """Make all steps of `projected`; those behind the end of a sequence leave its state."""
        outputs = []
        for t, projected_t in enumerate(projected.unbind(0)):
            advanced = self.advance(projected_t, state, constants)
            if remaining is None:
                state = advanced
                outputs.append(self.output(state))
                continue
            running = (t < remaining).unsqueeze(-1)
            state = tuple(
                torch.where(running, new, old) for new, old in zip(advanced, state, strict=True)
            )
            output = self.output(state)
            outputs.append(torch.where(running, output, torch.zeros_like(output)))
        return torch.stack(outputs), state


class RecordedLoop:
    """Recordings for one shape of everything.

    Args:
        recorder: Who records.
        recurrence: What is iterated.
        projected: (time, batch, projected); it gives its shape, as do the next two.
        state: The state.
        constants: What is the same at every step.
        masked: Whether sequences end early.
    """

    @torch.inference_mode(False)  # its memory is for passes with gradients too
    def __init__(
        self,
        recorder: Recorder,
        recurrence: Recurrence,
        projected: Tensor,
        state: State,
        constants: State,
        masked: bool,
    ) -> None:
        self.recorder, self.recurrence = recorder, recurrence
        self.projected = projected.new_zeros(STEPS, *projected.shape[1:])
        self.state = [part.new_zeros(part.shape) for part in state]
        self.constants = [part.new_zeros(part.shape) for part in constants]
        self.remaining = None
        if masked:
            self.remaining = torch.zeros(
                projected.shape[1], dtype=torch.int64, device=projected.device
            )
        with torch.no_grad():
            for mine, value in zip(self.constants, constants, strict=True):
                mine.copy_(value)
            output = recurrence.output(tuple(self.state))
        self.outputs = output.new_zeros(STEPS, *output.shape)
        self.go = recorder.record(self._forward)
        self._back: Callable[[], None] | None = None

    @torch.inference_mode(False)
    def prepare_backward(self) -> None:
        """Record the way back, if that was not done; not in the thread of a backward pass."""
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
        """Go back through the chunk whose beginning is in `state`."""
        assert self._back is not None  # prepared by the forward pass
        self._back()

    def load(self, projected: Tensor, lengths: Tensor | None, start: int) -> None:
        """Copy a chunk of the input in."""
        self.projected.copy_(projected[start : start + STEPS])
        if self.remaining is not None and lengths is not None:
            self.remaining.copy_(lengths - start)

    @staticmethod
    def fill(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Copy values to their places."""
        for target, value in zip(targets, values, strict=True):
            target.copy_(value)

    @torch.no_grad()
    def _forward(self) -> None:
        outputs, state = self.recurrence.run(
            self.projected, tuple(self.state), tuple(self.constants), self.remaining
        )
        self.outputs.copy_(outputs)
        self.fill(self.state, state)

    def _backward(self) -> None:
        with torch.enable_grad():
            parts = (self.projected, *self.state, *self.constants)
            leaves = [part.detach().requires_grad_(part.is_floating_point()) for part in parts]
            count = 1 + len(self.state)
            outputs, final = self.recurrence.run(
                leaves[0], tuple(leaves[1:count]), tuple(leaves[count:]), self.remaining
            )
            tensors = [*leaves, *self.recurrence.parameters]
            results = zip((outputs, *final), (self.grad_outputs, *self.grad_state), strict=True)
            gradients = _gradients([(r, g) for r, g in results if r.requires_grad], tensors)
        with torch.no_grad():
            _assign(self.grad_projected, gradients[0])
            for target, value in zip(self.grad_state, gradients[1:count], strict=True):
                _assign(target, value)
            sums = (*self.grad_constants, *self.grad_parameters)
            for target, value in zip(sums, gradients[count:], strict=True):
                if value is not None:
                    target += value
        self.read = [value is not None for value in gradients[len(leaves) :]]


def _gradients(
    results: Sequence[tuple[Tensor, Tensor]], tensors: Sequence[Tensor]
) -> list[Tensor | None]:
    """Differentiate by what can be differentiated by; None for the rest."""
    of, weights = zip(*results, strict=True)
    required = [tensor for tensor in tensors if tensor.requires_grad]
    gradients = iter(torch.autograd.grad(of, required, weights, allow_unused=True))
    return [next(gradients) if tensor.requires_grad else None for tensor in tensors]


def _assign(target: Tensor, value: Tensor | None) -> None:
    if value is None:
        target.zero_()
    else:
        target.copy_(value)
