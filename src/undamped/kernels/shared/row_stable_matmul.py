"""Matrix products whose rows do not depend on how many rows there are.

A row of A·B is the same bits whether A has eight rows or eight thousand, but not when it is one
of a few left over: the library takes other routines for those, which add in another order.
Streams and short last chunks would differ in the last bit from one long pass. So the number of
rows is rounded up to a multiple of eight. (The number of columns is what it is: where a layer's
width is not a multiple of eight, a row may still differ in its last bit with its place.)
"""

from __future__ import annotations

import torch
from torch import Tensor

EVEN = 8


def rounded_up(rows: int) -> int:
    """Return the number of rows to multiply so that all of them are treated alike."""
    return -(-rows // EVEN) * EVEN


def rows_times(rows: Tensor, matrix: Tensor, out: Tensor, *, add: bool = False) -> None:
    """Write rows · matrix into `out`, or add it.

    Args:
        rows: (rows, inner).
        matrix: (inner, columns).
        out: (rows, columns).
        add: Whether to add to what is there.
    """
    if rows.shape[0] % EVEN:
        wide = rows.new_zeros(rounded_up(rows.shape[0]), rows.shape[1])
        wide[: rows.shape[0]] = rows
        product = torch.mm(wide, matrix)[: rows.shape[0]]
        out.add_(product) if add else out.copy_(product)
    elif add:
        out.add_(torch.mm(rows, matrix))  # addmm would add in an order that depends on the rows
    else:
        torch.mm(rows, matrix, out=out)
