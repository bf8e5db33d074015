"""Many layers of oscillators, chunk by chunk in time: the backward pass.

Chunks are processed from the last to the first. Each is first recomputed from the bottom layer up
(positions and tanh of every layer, for this chunk only), then gradients are backpropagated from the
top layer down, and weight gradients are summed.

A chunk is recomputed forwards from the state at its start if that was stored, which repeats the
forward pass bit for bit. In "reversible" mode the chunks between two stored states are recomputed
by running backwards in time from the end. Rounding makes that inexact, so its end is compared with
the stored state. If they differ by more than a tolerance, the gradients of the segment are
discarded and it is repeated with checkpoints, with a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.unicornn.stack import Checkpoints, Work

# The allowed deviation of a run backwards, absolute: positions are arguments of tanh, whose natural
# unit is one, however large they are.
# Gradients then agree with those of "stored" to about ten times that, to a hundred times for
# trajectories that are as sensitive as the precision allows.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


class InversionWarning(RuntimeWarning):
    """Running backwards in time was not accurate enough; checkpoints were used instead."""


@dataclass
class Gradients:
    """Sums over chunks."""

    state: Tensor  # (layers, velocity and gradients of position and velocity, columns)
    columns: Tensor  # (layers, weight and step and bias, columns), in float64
    input_weights: list[Tensor]
    x: Tensor | None  # (steps, batch, input)

    @property
    def tensors(self) -> list[Tensor]:
        """All sums; not the gradient of the input, whose chunks are overwritten."""
        return [self.state, self.columns, *self.input_weights]


class BackwardPass:
    """One backward pass over a stack.

    Args:
        work: The layers and the input, as in the forward pass.
        checkpoints: The states that the forward pass stored.
        final: (layers, 2, columns), the state after the last step.
        grad_output: (steps, batch, hidden) or None.
        gradients: The sums; `state` starts as the gradient of the final state.
    """

    def __init__(
        self,
        work: Work,
        checkpoints: Checkpoints,
        final: Tensor,
        grad_output: Tensor | None,
        gradients: Gradients,
    ) -> None:
        self.work, self.checkpoints, self.final = work, checkpoints, final
        self.grad_output, self.gradients = grad_output, gradients
        layers = len(work.layers)
        self.grads = work.buffers(layers + 1)
        self.grads[layers - 1].zero_()  # zero if the outputs were not used
        self.missed: list[float] = []
        if not checkpoints.positions:
            work.positions, work.tanh_values = work.buffers(layers), work.buffers(layers)

    def run(self) -> None:
        """Process all chunks."""
        chunks, spacing = len(self.work.chunks), self.checkpoints.spacing
        for first in reversed(range(0, chunks, spacing)):
            last = min(first + spacing, chunks) - 1
            if last == first:
                self._from_start(first, self.checkpoints.states[first // spacing].clone())
            else:
                self._segment(first, last)

    def warn(self) -> None:
        """Warn if running backwards in time was not accurate enough."""
        if self.missed:
            warnings.warn(
                f"Running backwards in time missed a stored state by {self.missed[0]:.1e}: the "
                "trajectory is longer than this precision carries. The rest of the pass used "
                "checkpoints, which is exact but slower. "
                "Choose gradient='checkpoint', a smaller dt, or float64.",
                InversionWarning,
                stacklevel=2,
            )

    def _segment(self, first: int, last: int) -> None:
        """Process chunks of which only the first has its start stored."""
        start = self.checkpoints.states[first // self.checkpoints.spacing]
        if not self.missed:  # not after a failure in this pass
            copies = [tensor.clone() for tensor in self.gradients.tensors]
            missed = self._backwards(first, last, start)
            if missed is None:
                return
            self.missed.append(missed)
            for tensor, copy in zip(self.gradients.tensors, copies, strict=True):
                tensor.copy_(copy)
        starts, state = [], start.clone()
        for number in range(first, last + 1):
            starts.append(state.clone())
            if number < last:
                self.work.rebuild(self.work.chunks[number], state, backwards=False)
        for number in range(last, first - 1, -1):
            self._from_start(number, starts[number - first])

    def _backwards(self, first: int, last: int, start: Tensor) -> float | None:
        """Process chunks by running backwards in time; return the deviation if it is too large."""
        state = self._end(last).clone()
        for number in range(last, first, -1):
            end = state.clone()
            outputs = self.work.rebuild(self.work.chunks[number], state, backwards=True)
            self._gradients(number, outputs, state, end)
        reached = start.clone()
        outputs = self.work.rebuild(self.work.chunks[first], reached, backwards=False)
        missed = float((state - reached).abs().max())
        tolerance = self.work.limits.inversion_tolerance
        if missed > (TOLERANCE[state.dtype] if tolerance is None else tolerance):
            return missed
        # Not finite on both sides: the forward pass overflowed, and so will its gradients.
        self._gradients(first, outputs, start, reached)
        return None

    def _end(self, number: int) -> Tensor:
        """Return the state after a chunk, which is stored or final."""
        after, states = number // self.checkpoints.spacing + 1, self.checkpoints.states
        return self.final if after == len(states) else states[after]

    def _from_start(self, number: int, state: Tensor) -> None:
        """Process a chunk from the state at its start."""
        work, start = self.work, state.clone()
        if not self.checkpoints.positions:
            outputs = work.rebuild(work.chunks[number], state, backwards=False)
            self._gradients(number, outputs, start, state)
            return
        first, last = work.chunks[number]
        work.positions = [sequence[first:last] for sequence in self.checkpoints.positions]
        work.chunk_tanh_values = [sequence[first:last] for sequence in self.checkpoints.tanh_values]
        outputs = [work.output(at, positions) for at, positions in enumerate(work.positions)]
        self._gradients(number, [work.input(first, last), *outputs], start, self._end(number))

    def _gradients(self, number: int, outputs: list[Tensor], start: Tensor, end: Tensor) -> None:
        """Backpropagate through a recomputed chunk, from its states at start and end."""
        work, sums = self.work, self.gradients
        first, last = work.chunks[number]
        size, top = last - first, len(work.layers) - 1
        remaining = work.remaining(first, last)
        grads = [buffer[:size] for buffer in self.grads]
        if self.grad_output is not None:
            grads[top] = self.grad_output[first:last].reshape(size, work.width).contiguous()
        grad_projected = grads.pop()
        rows = grad_projected.view(-1, work.hidden)
        grad_x = None if sums.x is None else sums.x[first:last].view(-1, sums.x.shape[-1])
        filled = {top + 1}
        sums.state[:, 0] = end[:, 1]
        for at in range(top, -1, -1):
            if work.masks is not None and at < top:
                grads[at].view(-1, work.batch, work.hidden).mul_(work.masks[at])
            positions = work.positions[at][:size]
            work.columns.run(
                work.kernels["backward"],
                [positions, work.chunk_tanh_values[at], grads[at], grad_projected],
                work.constants[at],
                sums.state[at],
                sums=sums.columns[at],
                first=start[at, 0],
                remaining=remaining,
            )
            column = 0
            for source, block in work.blocks[at]:
                into = sums.input_weights[at][:, column : column + block.shape[1]]
                column += block.shape[1]
                into.addmm_(rows.t(), outputs[source])
                below = grad_x if source == 0 else grads[source - 1].view(-1, work.hidden)
                if below is None:
                    continue
                if source in filled:
                    below.addmm_(rows, block)
                else:
                    torch.mm(rows, block, out=below)
                    filled.add(source)
