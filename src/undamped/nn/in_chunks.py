"""Long sequences in chunks of some steps, in memory that does not grow with the length.

In layers of independent units only the state connects one step with the next. So all layers process
a chunk of steps before the next chunk begins, and activations between layers exist for one chunk
only. The state at the start of every chunk is saved, and the backward pass recomputes each chunk
(gradient checkpointing). The last chunks, as many as fit into a fixed amount of memory, are saved
with their graphs and not recomputed; so are all chunks of a stack of blocks if they fit into ten
times that, since recomputing them costs a third of the time. Blocks with a kernel that processes
tiles of time need no chunks then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from undamped.kernels.dispatch import implementation, runs_as_operator
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.chunks import Limits, chunk_length, ranges
from undamped.kernels.shared.limits import current_limits
from undamped.kernels.shared.operator import refuse_second_derivatives
from undamped.kernels.shared.threads import single_threaded
from undamped.nn.bases.block import Block
from undamped.nn.bases.cell import States
from undamped.nn.sequence_tensors import padding_mask

if TYPE_CHECKING:
    from undamped.nn.recurrent import Recurrent

CHUNK = Limits(16, 1024, cache_fraction=3.0, multiple=16)
"""Longer than fits into the cache, since every chunk costs calls of all layers."""

Result = Literal["every", "sum", "last"]


def step_bytes(network: Recurrent, x: Tensor) -> int:
    """Return about how many bytes a pass saves per step."""
    width = (
        network.cell_class.memory_plan.saved_sequences * network.hidden_size * network.num_layers
    )
    return width * x.shape[1] * x.element_size()


def should_chunk(network: Recurrent, x: Tensor) -> bool:
    """Return whether a sequence is long and the network can process it in chunks."""
    if runs_as_operator(x):  # the loop over chunks is Python and should not be traced
        return False
    if network.bidirectional or not (
        network.cell_class.memory_plan.chunked or network.block != "none"
    ):
        return False
    size, limits = len(x) * step_bytes(network, x), current_limits()
    if size <= limits.saved_bytes:
        return False
    saves_all = torch.is_grad_enabled() and size <= limits.all_saved_bytes
    if saves_all and _scans_blocks(network, x):
        return False
    if implementation(x, *network.parameters()) != "numba":
        return False
    blocks = [cell for cell in network.cells if isinstance(cell, Block)]
    if any(block.looks_ahead for block in blocks):
        return False
    # Running averages may change before the backward pass, which would recompute with others.
    averaging = any(block.norm == "batch-norm" for block in blocks)
    return not (averaging and torch.is_grad_enabled())


def _scans_blocks(network: Recurrent, x: Tensor) -> bool:
    """Return whether every layer is a block whose kernel processes tiles of time."""
    return all(
        isinstance(cell, Block)
        and cell.norm == "layer-norm"
        and cell.cell._block_scan(*x.shape[:2]) is not None
        for cell in network.cells
    )


def run_in_chunks(
    network: Recurrent, x: Tensor, states: States, lengths: Tensor | None, result: Result
) -> tuple[Tensor, States]:
    """Run all layers over (time, batch, input).

    Args:
        network: The network, with one direction.
        x: The input.
        states: The state of every layer before the first step.
        lengths: (batch,), where sequences end.
        result: All outputs, their sum over time, or only the final state.

    Returns:
        The outputs (time, batch, features), their sum (batch, features) or an empty tensor, and
        all states.
    """
    counts = tuple(len(state) for state in states)
    masks = network._draw_masks(x)
    names, parameters = zip(*network.named_parameters(), strict=True)
    plan = _Plan(network, names, counts, lengths, masks, result)
    flat = [part for state in states for part in state]
    output, *finals = _InChunks.apply(plan, len(flat), x, *flat, *parameters)
    return output, _grouped(finals, counts)


def _grouped(parts: Sequence[Tensor], counts: tuple[int, ...]) -> States:
    remaining = iter(parts)
    return [tuple(next(remaining) for _ in range(count)) for count in counts]


class _Layers(nn.Module):
    """The layers of a network as a function of their parameters, for `functional_call`."""

    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network = network

    def forward(self, *arguments: Any) -> tuple[Tensor, States]:
        return self.network._run_layers(*arguments)


@dataclass(frozen=True)
class _Plan:
    """The arguments of a pass that are not differentiated."""

    network: Recurrent
    names: tuple[str, ...]
    counts: tuple[int, ...]
    lengths: Tensor | None
    masks: States
    result: Result

    def threads(self, x: Tensor) -> AbstractContextManager[None]:
        """Return the thread context for running chunks.

        Blocks whose kernels have threads leave little work for torch's threads, which would then
        wait on cores that the kernels need.
        """
        return single_threaded() if _scans_blocks(self.network, x) else nullcontext()

    def buffer(self, x: Tensor) -> Tensor:
        """Return a tensor for the result: all outputs, zeros for their sum, or nothing."""
        width = self.network.output_size
        if self.result == "sum":
            return x.new_zeros(x.shape[1], width)
        return empty((len(x) if self.result == "every" else 0, x.shape[1], width), x)

    def run_chunk(
        self, x: Tensor, state: Sequence[Tensor], start: int, parameters: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Run all layers over a chunk; return its result and the states after it."""
        lengths = None
        if self.lengths is not None and int(self.lengths.min()) < start + len(x):
            lengths = (self.lengths - start).clamp(0, len(x))
            x = x.masked_fill(padding_mask(x, lengths), 0)
        weights = {f"network.{n}": p for n, p in zip(self.names, parameters, strict=True)}
        output, finals = torch.func.functional_call(
            _Layers(self.network), weights, (x, _grouped(state, self.counts), lengths, self.masks)
        )
        if self.result == "sum":
            output = output.sum(0)  # zeros where sequences are over
        elif self.result == "last":
            output = output[:0]
        return output, [part for final in finals for part in final]


@dataclass(frozen=True)
class _Record:
    """A chunk that was run with its graph: input, first state, output and final state."""

    x: Tensor
    state: list[Tensor]
    output: Tensor
    finals: list[Tensor]


def _run_with_graph(
    plan: _Plan, chunk: Tensor, state: Sequence[Tensor], start: int, parameters: Sequence[Tensor]
) -> _Record:
    with torch.enable_grad(), torch.autocast(chunk.device.type, enabled=False):
        x = chunk.detach().requires_grad_()
        begin = [part.detach().requires_grad_() for part in state]
        output, finals = plan.run_chunk(x, begin, start, parameters)
    return _Record(x, begin, output, finals)


def _first_saved_step(network: Recurrent, steps: int, each: int) -> int:
    """Return the first step whose chunk is saved with its graph, given the bytes per step."""
    limits = current_limits()
    save_all = network.block != "none" and steps * each <= limits.all_saved_bytes
    return 0 if save_all else steps - limits.saved_bytes // each


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, count: int, x: Tensor, *tensors: Tensor) -> Any:
        with plan.threads(x):
            state, parameters = [t.detach() for t in tensors[:count]], tensors[count:]
            differentiated = any(ctx.needs_input_grad)
            each = step_bytes(plan.network, x)
            length = current_limits().chunk_steps or chunk_length(len(x), each, CHUNK)
            chunks = ranges(len(x), length)
            first_saved = (
                _first_saved_step(plan.network, len(x), each) if differentiated else len(x)
            )
            leaves = [p.detach().requires_grad_(p.requires_grad) for p in parameters]
            # Tensors that outlive the loop are allocated first: between temporary ones they would
            # fragment the memory of the system's allocator.
            ctx.begins = [part.new_empty((len(chunks), *part.shape)) for part in state]
            outputs, ctx.records = plan.buffer(x), {}
            for index, (start, stop) in enumerate(chunks):
                for buffer, part in zip(ctx.begins, state, strict=True):
                    buffer[index] = part
                if start >= first_saved:
                    record = _run_with_graph(plan, x[start:stop], state, start, leaves)
                    ctx.records[start] = record
                    output = record.output.detach()
                    state = [part.detach() for part in record.finals]
                else:
                    with torch.no_grad():
                        output, state = plan.run_chunk(x[start:stop], state, start, leaves)
                if plan.result == "sum":
                    outputs += output
                elif plan.result == "every":
                    outputs[start:stop] = output
                del output
            ctx.plan, ctx.count, ctx.chunks, ctx.leaves = plan, count, chunks, leaves
            ctx.save_for_backward(x, *parameters)
            return outputs, *(part.clone() for part in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivatives()
        with ctx.plan.threads(ctx.saved_tensors[0]):
            grad, *flowing = grads
            x, *_ = ctx.saved_tensors  # raises if a parameter has changed since
            plan, leaves = ctx.plan, ctx.leaves
            grad_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
            trained = [leaf for leaf in leaves if leaf.requires_grad]
            totals = [torch.zeros_like(leaf) for leaf in trained]
            for index, (start, stop) in reversed(list(enumerate(ctx.chunks))):
                record = ctx.records.get(start)
                if record is None:
                    begin = [buffer[index] for buffer in ctx.begins]
                    record = _run_with_graph(plan, x[start:stop], begin, start, leaves)
                results, incoming = list(record.finals), list(flowing)
                if plan.result != "last":
                    results.append(record.output)
                    incoming.append(grad if plan.result == "sum" else grad[start:stop])
                inputs = [*record.state, *trained]
                if grad_x is not None:
                    inputs.append(record.x)
                gradients = _gradients(results, inputs, incoming)
                if grad_x is not None:
                    grad_x[start:stop] = gradients.pop()
                flowing = gradients[: ctx.count]
                for total, part in zip(totals, gradients[ctx.count :], strict=True):
                    total += part
            sums = iter(totals)
            of_parameters = [next(sums) if leaf.requires_grad else None for leaf in leaves]
            return None, None, grad_x, *flowing, *of_parameters


def _gradients(results: list[Tensor], inputs: list[Tensor], incoming: list[Tensor]) -> list[Tensor]:
    """Differentiate those results that depend on the inputs; zeros for unused inputs."""
    pairs = [(r, g) for r, g in zip(results, incoming, strict=True) if r.requires_grad]
    gradients = torch.autograd.grad(
        [r for r, _ in pairs],
        inputs,
        [g for _, g in pairs],
        retain_graph=True,  # for a second backward pass
        materialize_grads=True,
    )
    return list(gradients)
