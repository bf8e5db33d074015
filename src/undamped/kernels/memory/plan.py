"""What a pass of a network with memory is: choices, tensors, and marks of its slots."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """What is not a tensor.

    Args:
        step: One of `arrays.TANH`, …, `arrays.LSTM`.
        alignment: One of `attend.ADDITIVE`, `attend.DOT`.
        mix: One of `arrays.HALF`, …
        screening: One of `arrays.BY_ATTENTION`, …; −1 remembers everything.
        recent: How many last states are attended to.
        kept: How many relevant ones are.
        lengths: (batch,) where sequences are over, or None.
    """

    step: int
    alignment: int
    mix: int
    screening: int
    recent: int
    kept: int
    lengths: Tensor | None


@dataclass(frozen=True)
class Marks:
    """What a memory knows besides states; no gradient goes through it.

    Args:
        scores: (batch, slots), the relevance of the slots.
        seen: (batch, slots), whether a slot holds something.
        expected: (batch, product), the input that is expected, as it is projected and less the
            projection of zeros; (batch, 0) where nobody asks.
    """

    scores: Tensor
    seen: Tensor
    expected: Tensor

    def of(self, part: slice) -> Marks:
        """Return those of some samples."""
        return Marks(*(tensor[part].detach() for tensor in vars(self).values()))


TENSORS = (
    "mixed",
    "cell",
    "slots",
    "input",
    "bias",
    "recurrent",
    "key",
    "vector",
    "mixing",
    "threshold",
    "relevance",
    "silence",
)
"""The tensors of a scan, in order; (0,) where there is none. `slots` is (slots, batch, hidden)."""
