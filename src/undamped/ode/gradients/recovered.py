"""Whether an adjoint solve went back along the solution: what it recovers is known at outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.errors import SolveError, explain
from undamped.ode.settings import Settings

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
    size = torch.maximum(_largest(stored), _largest(end))
    size = torch.maximum(size, LEAST * size.amax())
    tolerance = settings.rtol * size + settings.atol
    allowed = TOLERANCES * tolerance
    # Of numbers that may be off by as much as they are, nobody wants to know.
    distance = torch.where(tolerance < size, (recovered - stored).abs(), 0.0)
    allowed = torch.maximum(allowed, LEAST * size).clamp_min(torch.finfo(size.dtype).tiny)
    excess = distance / allowed
    if not excess.amax() <= 1:
        drift = (distance / size).flatten()[excess.flatten().nan_to_num(torch.inf).argmax()].item()
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
    """Return the largest number of every sample, as a column."""
    if value.dim() < 2:
        return value.abs().amax()
    return value.abs().flatten(1).amax(1).view(-1, *(1,) * (value.dim() - 1))
