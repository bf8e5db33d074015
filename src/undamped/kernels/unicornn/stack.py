"""Many layers of oscillators, chunk by chunk in time: the forward pass.

For a chunk of steps: project, scan, project, scan … up to the last layer, then the next chunk. The
sequence between two layers exists for one chunk only. The argument `gradient` selects what is
stored for the backward pass:

- "stored": positions and tanh of every layer at every step;
- "checkpoint": the states at the start of every chunk;
- "reversible": the states at the start of at most `anchors` chunks, whatever the length; the
  others are recomputed by running backwards in time (`backward`).

The last two also store the values of tanh of the last chunks, as many as fit in a fixed amount of
memory (`chunks.replay_chunks`): with them a chunk is recomputed without matrix products.

On a GPU only the kernels and the length of a chunk are different (`shared.columns`). Dropout masks
multiply the outputs of a layer as the layers above read them. After the end of a sequence according
to `lengths`, its state stays, its outputs are zero, and its input is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.chunks import ranges, replay_chunks
from undamped.kernels.shared.columns import Columns, input_rows
from undamped.kernels.shared.limits import KernelLimits
from undamped.kernels.shared.row_stable_matmul import rows_times
from undamped.kernels.unicornn.scan import oscillator_constants

Gradient = Literal["reversible", "checkpoint", "stored"]


@dataclass(frozen=True)
class Layer:
    """One layer: parameters, and which outputs it reads (0 is the input, 1 the first layer)."""

    input_weight: Tensor  # (hidden, all sources side by side)
    bias: Tensor  # (hidden,)
    weight: Tensor  # (hidden,)
    step: Tensor  # (hidden,) effective time step
    alpha: float
    sources: tuple[int, ...]
    sizes: tuple[int, ...]

    def blocks(self) -> list[tuple[int, Tensor]]:
        """Return each source with its block of the input matrix, (hidden, size)."""
        parts = self.input_weight.detach().split(self.sizes, dim=1)
        return [(i, part.contiguous()) for i, part in zip(self.sources, parts, strict=True)]

    def constants(self) -> Tensor:
        """Return the constants of the kernels."""
        return oscillator_constants(self.weight, self.step, self.bias, self.alpha)


@dataclass(frozen=True)
class Checkpoints:
    """The states that the forward pass stores for the backward pass."""

    states: Tensor  # (stored states, layers, position and velocity, columns)
    spacing: int  # chunks from one stored state to the next
    positions: tuple[Tensor, ...] = ()  # per layer (steps, columns), for "stored"
    tanh_values: tuple[Tensor, ...] = ()


@dataclass
class Work:
    """Buffers for one chunk of some sequences, and the parameters in the layout of the kernels.

    The length of a chunk is that for the whole batch, since shards run at the same time and share
    the cache.
    """

    limits: KernelLimits
    chunk: int  # steps
    columns: Columns
    layers: list[Layer]
    x: Tensor  # (steps, batch, input), of all sequences
    lengths: Tensor | None
    masks: Tensor | None  # (layers - 1, batch, hidden)
    shard: slice
    positions: list[Tensor] = field(default_factory=list)
    tanh_values: list[Tensor] = field(default_factory=list)
    replay: dict[int, Tensor] = field(default_factory=dict)  # by layer, (stored steps, columns)

    def __post_init__(self) -> None:
        self.steps, batch = self.x.shape[:2]
        self.hidden, item_size = self.layers[0].weight.shape[0], self.x.element_size()
        width = batch * self.hidden
        self.chunks = ranges(self.steps, self.chunk)
        # Layers whose product takes longer than loading stored values of tanh.
        sizes = [sum(layer.sizes) for layer in self.layers]
        self.wide = [at for at, size in enumerate(sizes) if size >= self.limits.wide]
        numbers = (self.chunk, width, len(self.wide), item_size)
        first = max(0, len(self.chunks) - replay_chunks(self.limits.replay_bytes, *numbers))
        self.replay_start = self.chunks[first][0] if first < len(self.chunks) else self.steps
        self.x = self.x[:, self.shard]
        self.batch = self.x.shape[1]
        self.width = self.batch * self.hidden
        self.lengths = None if self.lengths is None else self.lengths[self.shard]
        self.masks = None if self.masks is None else self.masks[:, self.shard]
        self.blocks = [layer.blocks() for layer in self.layers]
        self.constants = [layer.constants() for layer in self.layers]
        self.kernels = self.columns.kernels("unicornn")
        self.shortest = self.columns.shortest(self.lengths, self.steps)

    def make_replay(self) -> None:
        """Allocate the tanh values of the last chunks of layers with a large product."""
        stored = self.steps - self.replay_start
        self.replay = {at: empty((stored, self.width), self.x) for at in self.wide if stored}

    def replay_values(self, at: int, start: int, stop: int) -> Tensor | None:
        """Return the stored values of tanh of a layer in a chunk, or None."""
        if at not in self.replay or start < self.replay_start:
            return None
        return self.replay[at][start - self.replay_start : stop - self.replay_start]

    def buffers(self, count: int) -> list[Tensor]:
        """Return `count` buffers of a chunk, (steps, columns)."""
        return [empty((self.chunk, self.width), self.x) for _ in range(count)]

    def remaining(self, start: int, stop: int) -> Any:
        """Return how many of the steps from `start` to `stop` each sequence has."""
        return self.columns.remaining(self.lengths, start, stop)

    def input(self, start: int, stop: int) -> Tensor:
        """Return the input of a chunk as rows (steps × batch, input), with zeros as padding."""
        return input_rows(self.x, self.lengths, self.shortest, start, stop)

    def project(self, at: int, outputs: list[Tensor], into: Tensor) -> None:
        """V u for layer `at`, without the bias, which the kernel adds."""
        rows = into.view(-1, self.hidden)
        (source, block), *others = self.blocks[at]
        rows_times(outputs[source], block.t(), rows)
        for source, block in others:
            rows_times(outputs[source], block.t(), rows, add=True)

    def output(self, at: int, positions: Tensor) -> Tensor:
        """Return a layer's outputs as the layers above read them, (steps × batch, hidden)."""
        if self.masks is None or at == len(self.layers) - 1:
            return positions.view(-1, self.hidden)
        masked = positions.view(-1, self.batch, self.hidden) * self.masks[at]
        return masked.view(-1, self.hidden)

    def rebuild(self, span: tuple[int, int], state: Tensor, *, backwards: bool) -> list[Tensor]:
        """Recompute positions and tanh of a chunk; return the outputs of each layer for readers.

        Positions are written to their buffer; `chunk_tanh_values` refers to the values of tanh.
        `state` (layers, 2, columns) is advanced from the chunk's start to its end, or, if
        `backwards`, from its end to its start.
        """
        start, stop = span
        remaining, outputs = self.remaining(start, stop), [self.input(start, stop)]
        self.chunk_tanh_values: list[Tensor] = []
        for at, constants in enumerate(self.constants):
            positions = self.positions[at][: stop - start]
            tanh_values = None if backwards else self.replay_values(at, start, stop)
            kernel = "replay"
            if tanh_values is None:
                kernel = "inverse" if backwards else "forward_store"
                tanh_values = self.tanh_values[at][: stop - start]
                self.project(at, outputs, tanh_values)
            self.chunk_tanh_values.append(tanh_values)
            sequences = [tanh_values, positions]
            self.columns.run(
                self.kernels[kernel], sequences, constants, state[at], remaining=remaining
            )
            outputs.append(self.output(at, positions))
        return outputs


def run_stack(
    work: Work, state: Tensor, gradient: Gradient | None, output: Tensor | None
) -> Checkpoints | None:
    """Run all layers over the whole sequence.

    Args:
        work: The layers and the input.
        state: (layers, 2, columns), position and velocity; advanced in place.
        gradient: The method of the backward pass; None if there is none.
        output: The positions of the last layer, (steps, batch, hidden), to be filled, or None. Any
            strides are allowed, except for "stored", which saves them.
    """
    if gradient == "stored":
        return _run_stored(work, state, output)
    spacing = -(-len(work.chunks) // work.limits.anchors) if gradient == "reversible" else 1
    if gradient is not None and spacing == 1:
        work.make_replay()
    states = []
    buffers = work.buffers(len(work.layers))
    for number, (start, stop) in enumerate(work.chunks):
        if gradient is not None and number % spacing == 0:
            states.append(state.clone())
        remaining, outputs = work.remaining(start, stop), [work.input(start, stop)]
        for at, constants in enumerate(work.constants):
            positions = buffers[at][: stop - start]
            values, kernel = work.replay_values(at, start, stop), "forward_store"
            if values is None:
                values, kernel = positions, "forward"
            work.project(at, outputs, values)
            sequences = [values, positions]
            work.columns.run(
                work.kernels[kernel], sequences, constants, state[at], remaining=remaining
            )
            outputs.append(work.output(at, positions))
        if output is not None:
            top = buffers[-1][: stop - start]
            output[start:stop] = top.view(stop - start, work.batch, work.hidden)
    return Checkpoints(torch.stack(states), spacing) if states else None


def _run_stored(work: Work, state: Tensor, output: Tensor | None) -> Checkpoints:
    shape, layers = (work.steps, work.width), len(work.layers)
    positions = [empty(shape, state) for _ in range(layers - (output is not None))]
    positions += [] if output is None else [output.view(shape)]
    tanh_values = [empty(shape, state) for _ in range(layers)]
    states = []
    for start, stop in work.chunks:
        states.append(state.clone())
        work.positions = [sequence[start:stop] for sequence in positions]
        work.tanh_values = [sequence[start:stop] for sequence in tanh_values]
        work.rebuild((start, stop), state, backwards=False)
    return Checkpoints(torch.stack(states), 1, tuple(positions), tuple(tanh_values))
