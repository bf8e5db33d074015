"""What every solver declares, measured: order, symmetries, inverse and promises."""

import pytest
from tiers import few_fast

from undamped._base.registry import solvers
from undamped.testing import SOLVER_CHECKS


@pytest.mark.parametrize("name", few_fast(solvers, fast=("euler", "leapfrog", "dopri5", "radau3")))
@pytest.mark.parametrize("check", SOLVER_CHECKS)
def test_solver(name, check):
    SOLVER_CHECKS[check](solvers[name])
