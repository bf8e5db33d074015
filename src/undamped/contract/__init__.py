"""What tasks and models have to agree on, though neither knows the other."""

from undamped.contract.batch import NO_TARGETS, Batch
from undamped.contract.clock import Clock
from undamped.contract.forecast import Forecast
from undamped.contract.shape import Answer, InputKind, TaskReadout, TaskShape, Use
from undamped.contract.state_space import Coordinate, StateSpace

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
