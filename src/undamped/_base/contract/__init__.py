"""What tasks and models have to agree on, though neither knows the other."""

from undamped._base.contract.batch import NO_TARGETS, Batch
from undamped._base.contract.clock import Clock
from undamped._base.contract.forecast import Forecast
from undamped._base.contract.shape import Answer, InputKind, TaskReadout, TaskShape, Use
from undamped._base.contract.state_space import Coordinate, StateSpace

__all__ = [
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
