"""The arguments of the compiled pass through a block: named arrays, row by row.

A row is one sequence at one time; rows of a time lie together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Weights(NamedTuple):
    """The parameters, with matrices in the layout in which the pass multiplies them."""

    coefficients: Any
    """a, k, f, s, (4, units)."""
    drive: Any
    """B, (features, units); in the backward pass f B, (units, features)."""
    read: Any
    """C, (units, features); in the backward pass (features, units)."""
    passing: Any
    """d, (features,)."""
    gate: Any
    """W, (features, 2 × features); in the backward pass (2 × features, features)."""
    bias: Any
    first_mask: Any
    """(1 or sequences, features), factors on g."""
    second_mask: Any
    """The same, on the summand of e."""


class Stored(NamedTuple):
    """The tensors that the backward pass needs, by rows; without one, of the current steps only."""

    velocities: Any
    """z, (rows + sequences, units), beginning with that before the first step."""
    readout: Any
    """r, (rows, features)."""
    pairs: Any
    """The argument of the gate, (rows, 2 × features)."""
    positions: Any
    """x at the beginning of every tile, (tiles, sequences, units)."""


class Buffers(NamedTuple):
    """Arrays for the steps of a tile."""

    v: Any
    """(rows, features)."""
    scales: Any
    """(rows,), the factors of the normalisation."""
    drive: Any
    """u, (rows, units); in the backward pass the gradient of f ⊙ u."""
    positions: Any
    """x, (rows + sequences, units), beginning with that before the tile."""
    g: Any
    """(rows, features)."""

    @classmethod
    def of(cls, rows: int, count: int, features: int, units: int, dtype: Any) -> Buffers:
        """Allocate the buffers for rows of some sequences."""
        shapes = ((rows, features), rows, (rows, units), (rows + count, units), (rows, features))
        return cls(*(np.empty(shape, dtype) for shape in shapes))


class BackwardBuffers(NamedTuple):
    """Further buffers for the backward pass."""

    output: Any
    """The gradient of the output, (rows, features)."""
    pairs: Any
    """That of the argument of the gate, (rows, 2 × features)."""
    readout: Any
    """That of r, (rows, features)."""
    coefficients: Any
    """Sums of one tile, for a, k and s, (3, units)."""
    bias: Any
    """Sums of one tile, (2 × features,)."""
    passing: Any
    """Sums of one tile, (features,)."""
    gates: Any
    """(features,), for one row."""

    @classmethod
    def of(cls, rows: int, features: int, units: int, dtype: Any) -> BackwardBuffers:
        """Allocate the buffers for a number of rows."""
        widths = (features, 2 * features, features)
        sums = ((3, units), 2 * features, features, features)
        shapes = (*((rows, width) for width in widths), *sums)
        return cls(*(np.empty(shape, dtype) for shape in shapes))


class Gradients(NamedTuple):
    """Sums of the backward pass of some sequences."""

    coefficients: Any
    """Of a, k and s, (3, units), in double precision."""
    drive: Any
    """Σ g vᵀ, (units, features), with the gradient g of f u."""
    read: Any
    """(features, units)."""
    passing: Any
    """(features,), in double precision."""
    gate: Any
    """(2 × features, features)."""
    bias: Any
    """(2 × features,), in double precision."""

    @classmethod
    def zero(cls, features: int, units: int, dtype: Any) -> Gradients:
        """Return sums of zero."""
        return cls(
            np.zeros((3, units)),
            np.zeros((units, features), dtype),
            np.zeros((features, units), dtype),
            np.zeros(features),
            np.zeros((2 * features, features), dtype),
            np.zeros(2 * features),
        )


class Ends(NamedTuple):
    """The last step of every sequence: its state, or the gradient of it."""

    output: Any
    """(sequences, features)."""
    readout: Any
    """r, (sequences, features)."""
    position: Any
    """(sequences, units)."""
    velocity: Any


class BlockPass(NamedTuple):
    """The arguments that both passes of a thread's sequences have."""

    blas: int
    epsilon: float
    tile: int
    """Steps of a tile."""
    e: Any
    """(steps, sequences, features), as `out`."""
    out: Any
    """The output, or the gradient of e."""
    weights: Weights
    stored: Stored
    buffers: Buffers
    last: Ends
    """Of all sequences.

    Position and velocity are the first state. In the backward pass they are the gradients of the
    final state, which are replaced by those of the first.
    """
    ends: Any
    """(sequences,) of this thread, the number of steps of each."""
    low: int
    """The first of this thread's sequences."""
