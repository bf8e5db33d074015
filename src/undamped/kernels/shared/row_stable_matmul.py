"""Matrix products whose rows do not depend on how many rows there are.

A row of A·B has the same bits whether A has eight or eight thousand rows, but not if it is one of
the rows after the last multiple of eight: BLAS uses other routines for those, with another order of
summation. Streams and short last chunks would differ in the last bit from one long pass. So the
number of rows is rounded up to a multiple of eight. (The number of columns is not: where a layer's
width is not a multiple of eight, the last bit of a row may depend on its index.)
"""

from __future__ import annotations

import torch
from torch import Tensor

EVEN = 8


def rounded_up(rows: int) -> int:
    """Return the next multiple of eight."""
    return -(-rows // EVEN) * EVEN


def rows_times(rows: Tensor, matrix: Tensor, out: Tensor, *, add: bool = False) -> None:
    """Write rows · matrix to `out`, or add it.

    Args:
        rows: (rows, inner).
        matrix: (inner, columns).
        out: (rows, columns).
        add: Whether to add to `out`.
    """
    if rows.shape[0] % EVEN:
        wide = rows.new_zeros(rounded_up(rows.shape[0]), rows.shape[1])
        wide[: rows.shape[0]] = rows
        product = torch.mm(wide, matrix)[: rows.shape[0]]
        out.add_(product) if add else out.copy_(product)
    elif add:
        out.add_(torch.mm(rows, matrix))  # the order of addmm depends on the rows
    else:
        torch.mm(rows, matrix, out=out)
