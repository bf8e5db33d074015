"""Held-out sequences of generated tasks: the same ones, whatever the size of a batch.

They are drawn in blocks of one size, block by block from generators of their own, and a batch is
cut out of the blocks that it touches. So models that learn with batches of different sizes are
scored on the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from undamped._base.errors import DataError, explain

TOGETHER = 96
"""Sequences of a block: a number that rules and classes divide, so that each has its share."""


def cut_from_blocks(
    draw: Callable[[int, int], Sequence[Tensor | None]],
    number: int,
    size: int,
    *,
    total: int,
    axes: Sequence[int],
) -> list[Tensor | None]:
    """Return what belongs to held-out batch `number`: each tensor of it, along its batch axis.

    Args:
        draw: Draws a block from its number and its size.
        number: The number of the batch.
        size: Sequences of a batch.
        total: Sequences of the whole part; the last batch may have fewer.
        axes: The batch axis of each tensor that `draw` returns.
    """
    first, last = number * size, min((number + 1) * size, total)
    blocks = range(first // TOGETHER, -(-last // TOGETHER))
    drawn = zip(*[draw(block, TOGETHER) for block in blocks], strict=True)
    return [
        _joined(parts, axis)
        .narrow(axis, first - blocks.start * TOGETHER, last - first)
        .contiguous()
        if parts[0] is not None
        else None
        for parts, axis in zip(drawn, axes, strict=True)
    ]


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    shapes = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(shapes) > 1:
        raise DataError(
            explain(
                "held-out sequences",
                expected="one shape for all, also of those that are drawn one after another",
                got=" and ".join(map(str, sorted(shapes))),
                remedy="Fill shorter sequences to the longest there can be, and give lengths.",
            )
        )
    return torch.cat(list(parts), axis)
