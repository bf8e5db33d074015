"""Checks that a model, cell, task or solver of any package must pass, for use in its tests.

Written by `python -m undamped.lab.catalogue`; do not edit.
"""

from undamped.lab.tasks.checks import TASK_CHECKS as TASK_CHECKS
from undamped.lab.tasks.checks import check_task as check_task
from undamped.testing.comparison import assert_promises as assert_promises
from undamped.testing.comparison import assert_same as assert_same
from undamped.testing.comparison import tensors_of as tensors_of
from undamped.testing.models import MODEL_CHECKS as MODEL_CHECKS
from undamped.testing.models import check_model as check_model
from undamped.testing.models import example_batch as example_batch
from undamped.testing.networks import NETWORK_CHECKS as NETWORK_CHECKS
from undamped.testing.networks import check_cell as check_cell
from undamped.testing.networks import check_network as check_network
from undamped.testing.networks import check_padding as check_padding
from undamped.testing.networks import sequences as sequences
from undamped.testing.networks import small_network as small_network
from undamped.testing.solvers import SOLVER_CHECKS as SOLVER_CHECKS
from undamped.testing.solvers import check_solver as check_solver
