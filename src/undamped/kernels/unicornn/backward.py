"""Many layers of oscillators, chunk by chunk in time: the backward pass.

Chunks are visited from the last to the first. Each is first rebuilt from the bottom layer up
(positions and tanh of every layer, for this chunk only), then gradients go from the top layer
down, and weight gradients are added up.

A chunk is rebuilt forwards from the state at its start where that was kept, which repeats the
forward pass bit for bit. In "reversible" mode the chunks between two kept states are rebuilt by
running backwards in time from the end. Rounding makes that inexact, so it is measured: it
has to arrive at the state that the next kept one leads to. Where it misses by more than
`TOLERANCE`, everything since is thrown away and the stretch is done again with checkpoints, with
a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.unicornn.stack import Kept, Work

# How far a run backwards may miss, in units of the state: positions stand inside a tanh, where
# one is the natural unit however large they have grown.
# Gradients then agree with stored ones to about ten times that, a hundred times where the
# trajectory is so sensitive that the precision itself loses it.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


class InversionWarning(RuntimeWarning):
    """Running backwards in time was not exact enough; checkpoints were used instead."""


@dataclass
class Gradients:
    """Sums that grow while chunks are visited."""

    state: Tensor  # (2, layers, columns)
    columns: Tensor  # (weight, step and bias, layers, columns), in float64
    input_weights: list[Tensor]
    x: Tensor | None  # (steps, batch, input)

    def copy_small(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Copy all but the gradient of the input, whose chunks are written afresh anyway."""
        return self.state.clone(), self.columns.clone(), [w.clone() for w in self.input_weights]

    def restore(self, saved: tuple[Tensor, Tensor, list[Tensor]]) -> None:
        """Go back to a copy."""
        self.state.copy_(saved[0])
        self.columns.copy_(saved[1])
        for weight, old in zip(self.input_weights, saved[2], strict=True):
            weight.copy_(old)


class BackwardPass:
    """One backward pass over a stack.

    Args:
        work: The layers and the input, as in the forward pass.
        kept: What the forward pass kept.
        final: (2, layers, columns), the state after the last step.
        grad_output: (steps, batch, hidden) or None.
        gradients: Where the sums go; `state` starts as the gradient of the final state.
    """

    def __init__(
        self,
        work: Work,
        kept: Kept,
        final: Tensor,
        grad_output: Tensor | None,
        gradients: Gradients,
    ) -> None:
        self.work, self.kept, self.final = work, kept, final
        self.grad_output, self.gradients = grad_output, gradients
        layers = len(work.layers)
        self.grads = work.buffers(layers + 1)
        self.grads[layers - 1].zero_()  # stays zero where the outputs were never read
        self.missed: list[float] = []
        self.stored = bool(kept.positions)
        if not self.stored:
            work.positions, work.tanh_values = work.buffers(layers), work.buffers(layers)

    def run(self) -> None:
        """Visit all chunks."""
        chunks, spacing = len(self.work.chunks), self.kept.every
        for first in reversed(range(0, chunks, spacing)):
            last = min(first + spacing, chunks) - 1
            if last == first:
                self._from_start(first, self.kept.borders[first // spacing].clone())
            else:
                self._segment(first, last)

    def warn(self) -> None:
        """Say so if running backwards in time was not exact enough."""
        if self.missed:
            warnings.warn(
                "running backwards in time missed a kept state by "
                f"{self.missed[0]:.1e}: the trajectory is longer than this precision "
                "carries. The rest of the pass went from checkpoints, which is exact but slower. "
                "Choose gradient='checkpoint', a smaller dt, or float64.",
                InversionWarning,
                stacklevel=2,
            )

    def _segment(self, first: int, last: int) -> None:
        """Visit chunks of which only the first has its start kept."""
        border = self.kept.borders[first // self.kept.every]
        if not self.missed:  # after one miss the rest of this pass does not try again
            saved = self.gradients.copy_small()
            missed = self._backwards(first, last, border)
            if missed is None:
                return
            self.missed.append(missed)
            self.gradients.restore(saved)
        starts, state = [], border.clone()
        for number in range(first, last + 1):
            starts.append(state.clone())
            if number < last:
                self.work.rebuild(self.work.chunks[number], state, backwards=False)
        for number in range(last, first - 1, -1):
            self._from_start(number, starts[number - first])

    def _backwards(self, first: int, last: int, border: Tensor) -> float | None:
        """Visit chunks by running backwards in time; return by how much that missed, if it did."""
        after = last // self.kept.every + 1
        state = self.final if after == len(self.kept.borders) else self.kept.borders[after]
        state = state.clone()
        for number in range(last, first, -1):
            end = state[1].clone()
            outputs = self.work.rebuild(self.work.chunks[number], state, backwards=True)
            self._gradients(number, outputs, state[0], end)
        reached = border.clone()
        outputs = self.work.rebuild(self.work.chunks[first], reached, backwards=False)
        missed = _distance(state, reached)
        if missed > TOLERANCE[state.dtype]:
            return missed
        # Not finite on both sides: the forward pass overflowed, and so will its gradients.
        self._gradients(first, outputs, border[0], reached[1])
        return None

    def _from_start(self, number: int, state: Tensor) -> None:
        """Visit a chunk whose start is known."""
        if self.stored:
            self._from_stored(number, state)
            return
        first = state[0].clone()
        outputs = self.work.rebuild(self.work.chunks[number], state, backwards=False)
        self._gradients(number, outputs, first, state[1])

    def _from_stored(self, number: int, state: Tensor) -> None:
        work = self.work
        start, stop = work.chunks[number]
        work.positions = [sequence[start:stop] for sequence in self.kept.positions]
        work.chunk_tanh_values = [sequence[start:stop] for sequence in self.kept.tanh_values]
        outputs = [work.input(start, stop)]
        outputs += [work.seen(at, positions) for at, positions in enumerate(work.positions)]
        after = number + 1
        end = self.final if after == len(work.chunks) else self.kept.borders[after]
        self._gradients(number, outputs, state[0], end[1].clone())

    def _gradients(
        self, number: int, outputs: list[Tensor], first: Tensor, velocity: Tensor
    ) -> None:
        """Send gradients down through a rebuilt chunk.

        `first` (layers, columns) are the positions before the chunk, `velocity` (layers,
        columns) the velocities after it.
        """
        work, sums = self.work, self.gradients
        start, stop = work.chunks[number]
        size, top = stop - start, len(work.layers) - 1
        masked, remaining = work.remaining(start, stop)
        grads = [buffer[:size] for buffer in self.grads]
        if self.grad_output is not None:
            grads[top] = self.grad_output[start:stop].reshape(size, work.columns).contiguous()
        grad_projected = grads.pop()
        rows = grad_projected.view(-1, work.hidden)
        grad_x = None if sums.x is None else sums.x[start:stop].view(-1, sums.x.shape[-1])
        filled = {top + 1}
        state, totals = sums.state, sums.columns
        for at in range(top, -1, -1):
            if work.masks is not None and at < top:
                grads[at].view(-1, work.batch, work.hidden).mul_(work.masks[at])
            weight, step, _, alpha = work.constants[at]
            work.run(
                work.engine.kernels.backward(masked),
                size,
                work.positions[at][:size],
                work.chunk_tanh_values[at],
                grads[at],
                grad_projected,
                first[at],
                weight,
                step,
                alpha,
                velocity[at],
                state[0, at],
                state[1, at],
                totals[0, at],
                totals[1, at],
                totals[2, at],
                remaining,
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


def _distance(state: Tensor, expected: Tensor) -> float:
    return float((state - expected).abs().max())
