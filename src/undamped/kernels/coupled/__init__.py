"""Recurrences whose step is one linear map and an elementwise function: `coupled_scan`.

`contract` defines steps, operators and projections, which are in `steps`, `operators` and
`projections`. `scan` is the autograd function, `operator` the registered operator for
torch.compile. Numba is imported when a kernel first runs.
"""

from undamped.kernels.coupled import operators, projections, steps
from undamped.kernels.coupled.contract import Operator, Step
from undamped.kernels.coupled.operator import scan_by_operator  # noqa: F401 (registers it)
from undamped.kernels.coupled.scan import coupled_scan

__all__ = ["Operator", "Step", "coupled_scan", "operators", "projections", "steps"]
