"""What tasks and models agree on: batches and the shape of a task."""

from undamped._base.contract.batch import NO_TARGETS, Batch
from undamped._base.contract.shape import (
    LONGEST_GAP,
    Answer,
    Clock,
    Coordinate,
    Forecast,
    InputKind,
    StateSpace,
    TaskReadout,
    TaskShape,
    Use,
)

__all__ = [
    "LONGEST_GAP",
    "NO_TARGETS",
    "Answer",
    "Batch",
    "Clock",
    "Coordinate",
    "Forecast",
    "InputKind",
    "StateSpace",
    "TaskReadout",
    "TaskShape",
    "Use",
]
