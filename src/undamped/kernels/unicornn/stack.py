"""Many layers of oscillators, chunk by chunk in time: the forward pass.

For a chunk of steps: project, scan, project, scan … up to the last layer, then the next chunk.
The sequence between two layers exists for one chunk only. What is kept for the backward pass is
the caller's choice of gradient:

- "stored": positions and tanh of every layer at every step;
- "checkpoint": the states at the start of every chunk;
- "reversible": the states at the start of at most `ANCHORS` chunks, whatever the length; the
  others are found by running backwards in time (`stack_backward`).

The last two also keep the values of tanh of the last chunks, as many as a fixed amount of memory
holds (`chunks.kept_chunks`): with them a chunk is run again without its matrix products.

On a GPU everything is the same but the kernels and the length of a chunk (`engine`).

Dropout masks lie on the outputs of a layer as the layers above see them. Where `lengths` say
that a sequence is over, its state rests, its outputs are zero, and its input is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.chunks import kept_chunks, ranges
from undamped.kernels.shared.row_stable_matmul import rows_times
from undamped.kernels.unicornn.engine import Engine

Gradient = Literal["reversible", "checkpoint", "stored"]
ANCHORS = 64
WIDE = 32  # numbers that a layer reads per step from which its product costs more than memory


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

    @property
    def wide(self) -> bool:
        """Whether its product is worth sparing."""
        return sum(self.sizes) >= WIDE

    def blocks(self) -> list[tuple[int, Tensor]]:
        """Return each source with its part of the input matrix, (hidden, size)."""
        parts = self.input_weight.detach().split(self.sizes, dim=1)
        return [(i, part.contiguous()) for i, part in zip(self.sources, parts, strict=True)]


@dataclass(frozen=True)
class Kept:
    """What the forward pass leaves for the backward pass."""

    borders: Tensor  # (kept borders, position and velocity, layers, columns)
    every: int  # chunks from one kept border to the next
    positions: tuple[Tensor, ...] = ()  # per layer (steps, columns), only when stored
    tanh_values: tuple[Tensor, ...] = ()


@dataclass
class Work:
    """Buffers for one chunk, and the parameters as the kernels want them."""

    layers: list[Layer]
    x: Tensor  # (steps, batch, input)
    lengths: Tensor | None
    masks: Tensor | None  # (layers - 1, batch, hidden)
    chunk: int
    engine: Engine
    replayed: int = 0  # how many of the last chunks may have their tanh_values kept
    positions: list[Tensor] = field(default_factory=list)
    tanh_values: list[Tensor] = field(default_factory=list)
    replay: dict[int, Tensor] = field(default_factory=dict)  # by layer, (kept steps, columns)

    def __post_init__(self) -> None:
        self.steps, self.batch = self.x.shape[:2]
        self.hidden = self.layers[0].weight.shape[0]
        self.columns = self.batch * self.hidden
        self.chunks = ranges(self.steps, self.chunk)
        self.blocks = [layer.blocks() for layer in self.layers]
        self.constants = [
            self.engine.constants((c.weight, c.step, c.bias), c.alpha) for c in self.layers
        ]
        self.unused = self.x.new_zeros(self.columns)
        self.shortest = self.engine.shortest(self.lengths, self.steps)
        first = max(0, len(self.chunks) - self.replayed)
        self.replay_start = self.chunks[first][0] if first < len(self.chunks) else self.steps

    def make_replay(self) -> None:
        """Allocate the tanh values of the last chunks of layers with a large product."""
        kept = self.steps - self.replay_start
        wide = [at for at, layer in enumerate(self.layers) if layer.wide]
        self.replay = {at: empty((kept, self.columns), self.x) for at in wide if kept}

    def replayed_tanh_values(self, at: int, start: int, stop: int) -> Tensor | None:
        """Return the kept tanh_values of a layer in a chunk, or None."""
        if at not in self.replay or start < self.replay_start:
            return None
        return self.replay[at][start - self.replay_start : stop - self.replay_start]

    def buffers(self, count: int) -> list[Tensor]:
        """Return `count` buffers of a chunk, (steps, columns)."""
        return [empty((self.chunk, self.columns), self.x) for _ in range(count)]

    def remaining(self, start: int, stop: int) -> tuple[bool, Any]:
        """Say whether a sequence ends before `stop`, and how many steps each column lives."""
        return self.engine.remaining(self.lengths, start, stop, self.hidden, self.unused)

    def run(self, kernel: Any, steps: int, *arguments: Any) -> None:
        """Run a kernel over all columns."""
        self.engine.run(kernel, steps, self.columns, arguments)

    def input(self, start: int, stop: int) -> Tensor:
        """Return the input of a chunk as rows (steps × batch, input), padding cut to zero."""
        x = self.x[start:stop]
        if self.lengths is not None and self.shortest < stop:
            steps = torch.arange(start, stop, device=x.device).unsqueeze(1)
            x = x.masked_fill((steps >= self.lengths).unsqueeze(-1), 0)
        return x.reshape(-1, x.shape[-1])

    def project(self, at: int, outputs: list[Tensor], into: Tensor) -> None:
        """V u for layer `at`, without the bias, which the kernel adds."""
        rows = into.view(-1, self.hidden)
        (source, block), *others = self.blocks[at]
        rows_times(outputs[source], block.t(), rows)
        for source, block in others:
            rows_times(outputs[source], block.t(), rows, add=True)

    def seen(self, at: int, positions: Tensor) -> Tensor:
        """Return a layer's outputs as the layers above see them, (steps × batch, hidden)."""
        rows = positions.view(-1, self.hidden)
        if self.masks is None or at == len(self.layers) - 1:
            return rows
        masked = positions.view(-1, self.batch, self.hidden) * self.masks[at]
        return masked.view(-1, self.hidden)

    def rebuild(self, span: tuple[int, int], state: Tensor, *, backwards: bool) -> list[Tensor]:
        """Find positions and tanh_values of a chunk; return what each layer's readers see.

        Positions go into their buffer; where the tanh_values are is left in `chunk_tanh_values`.

        `state` (2, layers, columns) is carried from the chunk's start to its end, or, when
        `backwards`, from its end to its start.
        """
        kernels = self.engine.kernels
        start, stop = span
        masked, remaining = self.remaining(start, stop)
        outputs = [self.input(start, stop)]
        self.chunk_tanh_values: list[Tensor] = []
        for at in range(len(self.layers)):
            positions = self.positions[at][: stop - start]
            kept = None if backwards else self.replayed_tanh_values(at, start, stop)
            if kept is None:
                kernel = kernels.inverse(masked) if backwards else kernels.forward_keep(masked)
                tanh_values = self.tanh_values[at][: stop - start]
                self.project(at, outputs, tanh_values)
            else:
                kernel, tanh_values = kernels.forward_keep(masked, known=True), kept
            self.chunk_tanh_values.append(tanh_values)
            constants = self.constants[at]
            states = (state[0, at], state[1, at])
            self.run(kernel, stop - start, tanh_values, positions, *constants, *states, remaining)
            outputs.append(self.seen(at, positions))
        return outputs


def run_stack(
    work: Work, state: Tensor, gradient: Gradient | None, output: Tensor | None
) -> Kept | None:
    """Run all layers over the whole sequence.

    Args:
        work: The layers and the input.
        state: (2, layers, columns), position and velocity; advanced in place.
        gradient: What to keep for a backward pass; None for nothing.
        output: Where the positions of the last layer go, (steps, batch, hidden); None if
            nobody reads them. Any strides will do, except for "stored", which keeps them.
    """
    kernels = work.engine.kernels
    if gradient == "stored":
        return _run_stored(work, state, output)
    spacing = -(-len(work.chunks) // ANCHORS) if gradient == "reversible" else 1
    if gradient is not None and spacing == 1:
        work.make_replay()
    borders = []
    buffers = work.buffers(len(work.layers))
    for number, (start, stop) in enumerate(work.chunks):
        if gradient is not None and number % spacing == 0:
            borders.append(state.clone())
        masked, remaining = work.remaining(start, stop)
        outputs = [work.input(start, stop)]
        for at in range(len(work.layers)):
            positions = buffers[at][: stop - start]
            tanh_values = work.replayed_tanh_values(at, start, stop)
            work.project(at, outputs, positions if tanh_values is None else tanh_values)
            work.run(
                kernels.forward(masked) if tanh_values is None else kernels.forward_keep(masked),
                stop - start,
                *(() if tanh_values is None else (tanh_values,)),
                positions,
                *work.constants[at],
                state[0, at],
                state[1, at],
                remaining,
            )
            outputs.append(work.seen(at, positions))
        if output is not None:
            top = buffers[-1][: stop - start]
            output[start:stop] = top.view(stop - start, work.batch, work.hidden)
    return Kept(torch.stack(borders), spacing) if borders else None


def _run_stored(work: Work, state: Tensor, output: Tensor | None) -> Kept:
    shape = (work.steps, work.columns)
    layers = len(work.layers)
    positions = [empty(shape, state) for _ in range(layers - (output is not None))]
    positions += [] if output is None else [output.view(shape)]
    tanh_values = [empty(shape, state) for _ in range(layers)]
    borders = []
    for start, stop in work.chunks:
        borders.append(state.clone())
        work.positions = [whole[start:stop] for whole in positions]
        work.tanh_values = [whole[start:stop] for whole in tanh_values]
        work.rebuild((start, stop), state, backwards=False)
    return Kept(torch.stack(borders), 1, tuple(positions), tuple(tanh_values))


def plan(
    layers: list[Layer],
    x: Tensor,
    lengths: Tensor | None,
    masks: Tensor | None,
    engine: Engine,
    part: slice = slice(None),
) -> Work:
    """Choose a chunk length and prepare the work on a part of the batch.

    The length is that for the whole batch: parts run at the same time and share the cache.
    """
    columns = x.shape[1] * layers[0].weight.shape[0]
    chunk = engine.chunk(x.shape[0], columns, len(layers), x.element_size())
    wide = sum(layer.wide for layer in layers)
    return Work(
        layers,
        x[:, part],
        None if lengths is None else lengths[part],
        None if masks is None else masks[:, part],
        chunk,
        engine,
        kept_chunks(chunk, columns, wide, x.element_size()),
    )
