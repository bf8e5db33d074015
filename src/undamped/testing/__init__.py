"""Checks that a model, cell, task or solver of any package must pass, for use in its tests.

    from undamped.testing import check_cell

    def test_my_cell():
        check_cell(MyCell, forget_bias=1.0)

Every check raises an `AssertionError` that names what differs. They run in float64 on networks of a
few units, and take about a second together. The conformance tests of this library call the same
functions for every registered name.
"""

from undamped.testing.comparison import assert_promises, assert_same, tensors_of
from undamped.testing.models import MODEL_CHECKS, check_model, example_batch
from undamped.testing.networks import (
    NETWORK_CHECKS,
    check_cell,
    check_network,
    check_padding,
    sequences,
    small_network,
)
from undamped.testing.solvers import SOLVER_CHECKS, check_solver
from undamped.testing.tasks import TASK_CHECKS, check_task

__all__ = [
    "MODEL_CHECKS",
    "NETWORK_CHECKS",
    "SOLVER_CHECKS",
    "TASK_CHECKS",
    "assert_promises",
    "assert_same",
    "check_cell",
    "check_model",
    "check_network",
    "check_padding",
    "check_solver",
    "check_task",
    "example_batch",
    "sequences",
    "small_network",
    "tensors_of",
]
