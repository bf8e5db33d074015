"""Recurrences whose step is one linear map and something elementwise: `coupled_scan`.

`contract` says what a step, an operator and a projection are; `steps`, `operators` and
`projections` hold them; `scan` is the function of torch, `operator` the same for its compiler.
Numba is imported when a kernel first runs.
"""

from undamped.kernels.coupled import operators, projections, steps
from undamped.kernels.coupled.contract import Operator, Step
from undamped.kernels.coupled.operator import scan_by_operator  # noqa: F401 (registers it)
from undamped.kernels.coupled.scan import coupled_scan

__all__ = ["Operator", "Step", "coupled_scan", "operators", "projections", "steps"]
