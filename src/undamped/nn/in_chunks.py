"""A whole network over a long sequence, some steps at a time, in memory that does not grow.

For layers of independent units nothing but the state goes from one step to the next. So all layers
go over a chunk of steps before the next chunk begins, and what lies between two layers exists for
one chunk only. The states at the start of every chunk are kept; the backward pass goes through a
chunk again to get its gradients. The last chunks, as many as a fixed amount of memory holds, are
kept as they are and not gone through again; so are all chunks of a stack of blocks if ten times
that holds them, since going through its products twice takes a third as long again. Blocks that go
through time in tiles of their own then need no chunks at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from undamped.kernels.dispatch import implementation, through_operator
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.chunks import Limits, chunk_length, ranges
from undamped.kernels.shared.eager_function import refuse_second_derivatives
from undamped.kernels.shared.threads import alone
from undamped.nn.bases.block import Block
from undamped.nn.bases.cell import State
from undamped.nn.sequence_tensors import padding_mask

if TYPE_CHECKING:
    from undamped.nn.recurrent import Recurrent

KEPT_BYTES = 64 << 20
"""What a pass may keep for its backward pass, whatever the length."""
WHOLE_BYTES = 640 << 20
"""Unless this holds all of it: then all chunks of a stack of blocks are kept, and none is gone
through again. A layer without a block is cheap to go through."""
CHUNK = Limits(16, 1024, share=3.0, multiple=16)
"""Longer than what the cache holds: a chunk has its price in calls, of every layer twice."""

Wanted = Literal["every", "sum", "last"]


def step_bytes(network: Recurrent, x: Tensor) -> int:
    """Return about what a pass keeps of a step."""
    width = network.cell_class.kept_sequences * network.hidden_size * network.num_layers
    return width * x.shape[1] * x.element_size()


def worth_it(network: Recurrent, x: Tensor) -> bool:
    """Say whether a sequence is long, and the network one that can be taken in chunks."""
    if through_operator(x):  # chunks are Python, which nobody should trace
        return False
    if network.bidirectional or not (network.cell_class.in_chunks or network.block != "none"):
        return False
    size = len(x) * step_bytes(network, x)
    if size <= KEPT_BYTES:
        return False
    if torch.is_grad_enabled() and size <= WHOLE_BYTES and _scans_blocks(network, x):
        return False  # all of it is kept
    if implementation(x, *network.parameters()) != "numba":
        return False
    blocks = [cell for cell in network.cells if isinstance(cell, Block)]
    if any(block.looks_ahead for block in blocks):
        return False
    # Averages that stand still may move before the backward pass: then they are not looked up.
    averaging = any(block.norm == "batch-norm" for block in blocks)
    return not (averaging and torch.is_grad_enabled())


def _scans_blocks(network: Recurrent, x: Tensor) -> bool:
    """Say whether every layer is a block that goes through time in tiles of its own."""
    return all(
        isinstance(cell, Block)
        and cell.norm == "layer-norm"
        and cell.cell.scans_blocks(*x.shape[:2])
        for cell in network.cells
    )


def run_in_chunks(
    network: Recurrent, x: Tensor, states: list[State], lengths: Tensor | None, wanted: Wanted
) -> tuple[Tensor, list[State]]:
    """Run all layers over (time, batch, input).

    Args:
        network: The network, with one direction.
        x: The input.
        states: The state of every layer before the first step.
        lengths: (batch,), where sequences end.
        wanted: All outputs, their sum over time, or none but the last, which is in the states.

    Returns:
        The outputs (time, batch, features), their sum (batch, features) or an empty tensor, and
        all states.
    """
    counts = tuple(len(state) for state in states)
    masks = network._draw_masks(x)
    names, parameters = zip(*network.named_parameters(), strict=True)
    plan = _Plan(network, names, counts, lengths, masks, wanted)
    flat = [part for state in states for part in state]
    output, *finals = _InChunks.apply(plan, len(flat), x, *flat, *parameters)
    return output, _grouped(finals, counts)


def _grouped(parts: Sequence[Tensor], counts: tuple[int, ...]) -> list[State]:
    remaining = iter(parts)
    return [tuple(next(remaining) for _ in range(count)) for count in counts]


class _Layers(nn.Module):
    """The layers of a network as a function of their parameters, for `functional_call`."""

    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network = network

    def forward(self, *arguments: Any) -> tuple[Tensor, list[State]]:
        return self.network._run_layers(*arguments)


@dataclass(frozen=True)
class _Plan:
    """What is not a tensor to be differentiated."""

    network: Recurrent
    names: tuple[str, ...]
    counts: tuple[int, ...]
    lengths: Tensor | None
    masks: list[State]
    wanted: Wanted

    def threads(self, x: Tensor) -> AbstractContextManager[None]:
        """Return what chunks are gone through in.

        Between blocks that share their sequences among threads of their own there is little to do:
        torch's threads would help with it, and then wait for more on cores that the others need.
        """
        return alone() if _scans_blocks(self.network, x) else nullcontext()

    def room(self, x: Tensor) -> Tensor:
        """Return where what is wanted goes: all outputs, zeros for their sum, or nothing."""
        width = self.network.output_size
        if self.wanted == "sum":
            return x.new_zeros(x.shape[1], width)
        return empty((len(x) if self.wanted == "every" else 0, x.shape[1], width), x)

    def go(
        self, x: Tensor, state: Sequence[Tensor], start: int, parameters: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Go through a chunk; return what is wanted of it, and the states after it."""
        lengths = None
        if self.lengths is not None and int(self.lengths.min()) < start + len(x):
            lengths = (self.lengths - start).clamp(0, len(x))
            x = x.masked_fill(padding_mask(x, lengths), 0)
        named = {f"network.{n}": p for n, p in zip(self.names, parameters, strict=True)}
        output, finals = torch.func.functional_call(
            _Layers(self.network), named, (x, _grouped(state, self.counts), lengths, self.masks)
        )
        if self.wanted == "sum":
            output = output.sum(0)  # zeros where sequences are over
        elif self.wanted == "last":
            output = output[:0]
        return output, [part for final in finals for part in final]


@dataclass(frozen=True)
class _Gone:
    """A chunk that was gone through with its graph: where it begins and what came out."""

    x: Tensor
    state: list[Tensor]
    output: Tensor
    finals: list[Tensor]


def _go_with_graph(
    plan: _Plan, piece: Tensor, state: Sequence[Tensor], start: int, parameters: Sequence[Tensor]
) -> _Gone:
    with torch.enable_grad(), torch.autocast(piece.device.type, enabled=False):
        x = piece.detach().requires_grad_()
        begin = [part.detach().requires_grad_() for part in state]
        output, finals = plan.go(x, begin, start, parameters)
    return _Gone(x, begin, output, finals)


def _kept_from(network: Recurrent, steps: int, each: int) -> int:
    """Return from which step on chunks are kept, given the bytes of each step."""
    whole = network.block != "none" and steps * each <= WHOLE_BYTES
    return 0 if whole else steps - KEPT_BYTES // each


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, count: int, x: Tensor, *tensors: Tensor) -> Any:
        with plan.threads(x):
            return _InChunks._forward(ctx, plan, count, x, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivatives()
        with ctx.plan.threads(ctx.saved_tensors[0]):
            return _InChunks._backward(ctx, *grads)

    @staticmethod
    def _forward(ctx: Any, plan: _Plan, count: int, x: Tensor, *tensors: Tensor) -> Any:
        state, parameters = [t.detach() for t in tensors[:count]], tensors[count:]
        differentiated = any(ctx.needs_input_grad)
        each = step_bytes(plan.network, x)
        chunks = ranges(len(x), chunk_length(len(x), each, CHUNK))
        kept_from = _kept_from(plan.network, len(x), each) if differentiated else len(x)
        leaves = [p.detach().requires_grad_(p.requires_grad) for p in parameters]
        # What lives on is allocated before the chunks are: between what comes and goes with every
        # chunk it would keep the system's allocator from using memory again.
        ctx.begins = [part.new_empty((len(chunks), *part.shape)) for part in state]
        whole, ctx.gone = plan.room(x), {}
        for number, (start, stop) in enumerate(chunks):
            for kept, part in zip(ctx.begins, state, strict=True):
                kept[number] = part
            if start >= kept_from:
                gone = _go_with_graph(plan, x[start:stop], state, start, leaves)
                ctx.gone[start] = gone
                output = gone.output.detach()
                state = [part.detach() for part in gone.finals]
            else:
                with torch.no_grad():
                    output, state = plan.go(x[start:stop], state, start, leaves)
            if plan.wanted == "sum":
                whole += output
            elif plan.wanted == "every":
                whole[start:stop] = output
            del output
        ctx.plan, ctx.count, ctx.chunks, ctx.leaves = plan, count, chunks, leaves
        ctx.save_for_backward(x, *parameters)
        return whole, *(part.clone() for part in state)

    @staticmethod
    def _backward(ctx: Any, *grads: Tensor) -> Any:
        grad, *flowing = grads
        x, *_ = ctx.saved_tensors  # which says so if a parameter has changed since
        plan, leaves = ctx.plan, ctx.leaves
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        trained = [leaf for leaf in leaves if leaf.requires_grad]
        totals = [torch.zeros_like(leaf) for leaf in trained]
        for number, (start, stop) in reversed(list(enumerate(ctx.chunks))):
            gone = ctx.gone.get(start)
            if gone is None:
                begin = [kept[number] for kept in ctx.begins]
                gone = _go_with_graph(plan, x[start:stop], begin, start, leaves)
            results, incoming = list(gone.finals), list(flowing)
            if plan.wanted != "last":
                results.append(gone.output)
                incoming.append(grad if plan.wanted == "sum" else grad[start:stop])
            wanted = [*gone.state, *trained]
            if grad_x is not None:
                wanted.append(gone.x)
            found = list(_gradients(results, wanted, incoming))
            if grad_x is not None:
                piece = found.pop()
                grad_x[start:stop] = 0 if piece is None else piece
            flowing = [
                torch.zeros_like(part) if g is None else g
                for g, part in zip(found, gone.state, strict=False)
            ]
            for total, g in zip(totals, found[ctx.count :], strict=True):
                if g is not None:
                    total += g
        sums = iter(totals)
        of_parameters = [next(sums) if leaf.requires_grad else None for leaf in leaves]
        return None, None, grad_x, *flowing, *of_parameters


def _gradients(
    results: list[Tensor], wanted: list[Tensor], incoming: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """Differentiate; what depends on nothing that is wanted has nothing to say."""
    pairs = [(r, g) for r, g in zip(results, incoming, strict=True) if r.requires_grad]
    return torch.autograd.grad(
        [r for r, _ in pairs],
        wanted,
        [g for _, g in pairs],
        allow_unused=True,
        retain_graph=True,  # a chunk that is kept may be asked again, as the whole may be
    )
