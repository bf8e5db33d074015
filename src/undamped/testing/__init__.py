"""Checks that a model, cell, task or solver of any package must pass, for use in its tests.

    from undamped.testing import check_cell

    def test_my_cell():
        check_cell(MyCell, forget_bias=1.0)

Every check raises an `AssertionError` that names what differs. They run in float64 on networks of a
few units, and take about a second together. The conformance tests of this library call the same
functions for every registered name.
"""

from undamped._base.lazy import lazy_names

_NAMES = {
    "MODEL_CHECKS": "undamped.testing.models",
    "NETWORK_CHECKS": "undamped.testing.networks",
    "SOLVER_CHECKS": "undamped.testing.solvers",
    "TASK_CHECKS": "undamped.lab.tasks.checks",
    "assert_promises": "undamped.testing.comparison",
    "assert_same": "undamped.testing.comparison",
    "check_cell": "undamped.testing.networks",
    "check_model": "undamped.testing.models",
    "check_network": "undamped.testing.networks",
    "check_padding": "undamped.testing.networks",
    "check_solver": "undamped.testing.solvers",
    "check_task": "undamped.lab.tasks.checks",
    "example_batch": "undamped.testing.models",
    "sequences": "undamped.testing.networks",
    "small_network": "undamped.testing.networks",
    "tensors_of": "undamped.testing.comparison",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
