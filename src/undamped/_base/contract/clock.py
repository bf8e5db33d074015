"""How time runs in a task whose samples come at times of their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from undamped._base.errors import OptionError, explain

LONGEST_GAP = 1e5
"""In usual gaps: what is longer is two recordings in one, or a wrong timestamp."""


@dataclass(frozen=True)
class Clock:
    """What is a usual gap between two samples, and how long a usual sequence lasts.

    Times may be seconds, years or anything: a model that has to know what is long and what is
    short (a first guess of a decay, the size of a solver's step) reads it here, and never from
    the batch it happens to see, whose other sequences are none of a sequence's business.

    Args:
        gap: The median time between two inputs.
        span: How long a sequence lasts, from time 0 to its last input or answer.

    Example:
        >>> Clock(gap=0.05, span=5.0).span
        5.0
    """

    gap: float = 1.0
    span: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.gap < float("inf") and 0 < self.span < float("inf")):
            raise OptionError(
                explain(
                    "Clock",
                    expected="a gap and a span above 0",
                    got=f"{self.gap:g} and {self.span:g}",
                    remedy="Give the median gap of the training data, and how long it lasts.",
                )
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)
