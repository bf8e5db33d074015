"""Matrix products whose rows do not depend on how many rows there are.

A row of A·B is the same bits whether A has eight rows or eight thousand, but not when it has
one: the library then takes a matrix-vector routine that adds in another order. Streams, short
last chunks and single sequences would differ in the last bit from one long pass. So a product of
few rows is done with a few more.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST = 8


def rows_times(rows: Tensor, matrix: Tensor, out: Tensor, *, add: bool = False) -> None:
    """Write rows · matrix into `out`, or add it.

    Args:
        rows: (rows, inner).
        matrix: (inner, columns).
        out: (rows, columns).
        add: Whether to add to what is there.
    """
    if rows.shape[0] >= FEWEST:
        if add:
            out.addmm_(rows, matrix)
        else:
            torch.mm(rows, matrix, out=out)
        return
    wide = rows.new_zeros(FEWEST, rows.shape[1])
    wide[: rows.shape[0]] = rows
    into = out.new_zeros(FEWEST, out.shape[1])
    into[: out.shape[0]] = out if add else 0
    rows_times(wide, matrix, into, add=add)
    out.copy_(into[: out.shape[0]])
