"""Starts of noisy trajectories, made better by what follows them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def better_starts(
    follow: Callable[[Tensor], Tensor], start: Tensor, targets: Tensor, iterations: int
) -> Tensor:
    """Return states near the starts that were read, from which the model meets what was read later.

    All starts of a batch are moved together by L-BFGS, with the model as it is; the reading of the
    start itself counts as much as each that follows.

    Equation:
        min over z₀ of |z₀ − ẑ₀|² + Σ_t |z_t(z₀) − ẑ_t|²

    Args:
        follow: From starts (batch, size) to states (outputs, batch, size).
        start: Starts as they were read, ẑ₀.
        targets: What was read later, ẑ_t.
        iterations: Of L-BFGS.
    """
    with torch.enable_grad():
        moved = start.detach().clone().requires_grad_()
        search = torch.optim.LBFGS([moved], max_iter=iterations, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            error = (follow(moved) - targets).square().sum() + (moved - start).square().sum()
            (moved.grad,) = torch.autograd.grad(error, moved)
            return error

        search.step(closure)
    return moved.detach()
