"""Whether an adjoint solve went back along the solution: what it recovers is known at outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.errors import SolveError, explain
from undamped.solvers.settings import Settings

TOLERANCES = 100.0
"""How many tolerances a state recovered on the way back may be off."""
LEAST = 3e-3
"""How far off it may be in any case, relative to the state."""


def refuse_drift(recovered: Tensor, stored: Tensor, end: Tensor, settings: Settings) -> None:
    """Raise an error where the state solved back in time is not the one of the forward pass.

    A flow that contracts expands on the way back: errors grow, and the adjoint is that of another
    solution.

    Args:
        recovered: The state that the adjoint solve arrived at.
        stored: The state there in the forward pass.
        end: The state that the adjoint solve started from.
        settings: Tolerances of the adjoint solve.
    """
    if not stored.numel():
        return
    rtol, (_, atol) = settings.loosest_rtol, settings.tightest
    allowed = max(LEAST, TOLERANCES * rtol)
    distance, here, there = (_largest(x) for x in (recovered - stored, stored, end))
    size = torch.maximum(here, there)
    size = torch.maximum(size, LEAST * size.amax()) + TOLERANCES * atol / allowed
    drift = (distance / size).amax().item()
    if not drift <= allowed:
        raise SolveError(
            explain(
                "gradient='adjoint'",
                expected="a solve back in time that meets the states of the forward pass",
                got=f"a state that is off by {100 * drift:.2g} %, since the field contracts: its "
                "gradient would be that of another solution",
                remedy="Use gradient='checkpoint', which solves nothing back, or more output "
                "times, from each of which the adjoint starts anew.",
            )
        )


def _largest(value: Tensor) -> Tensor:
    """Return the largest number of every sample."""
    rows = value.detach().reshape(len(value), -1) if value.dim() > 1 else value.reshape(1, -1)
    return torch.linalg.vector_norm(rows, torch.inf, 1)
