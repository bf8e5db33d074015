"""Small matrices made by one thread, in the forward and in the backward pass.

An exponential of a small matrix is many small products. The threads of the matrix library would
meet at each, which on a busy machine takes a hundred times as long as the arithmetic
(`kernels.shared.threads`). In the backward pass autograd would compute them with all threads again;
so what makes the matrix has a graph of its own, which is gone through by the one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.shared.threads import alone

Tensors = tuple[Tensor, ...]


def made_apart(make: Callable[[], Tensors], sources: Tensors) -> Tensors:
    """Return what `make` returns, differentiable with respect to `sources`.

    Args:
        make: Computes tensors from the sources, which it knows.
        sources: Tensors that `make` reads.
    """
    wanted = tuple(source for source in sources if source.requires_grad)
    if not wanted or not torch.is_grad_enabled():
        with alone():
            return make()
    return _Apart.apply(make, *wanted)  # type: ignore[return-value]


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, make: Callable[[], Tensors], *sources: Tensor) -> Tensors:
        with alone(), torch.enable_grad():
            ctx.made = make()
        ctx.save_for_backward(*sources)
        return tuple(one.detach() for one in ctx.made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        pairs = [
            (made, gradient)
            for made, gradient in zip(ctx.made, gradients, strict=True)
            if made.requires_grad
        ]
        with alone():
            found = torch.autograd.grad(
                [made for made, _ in pairs],
                ctx.saved_tensors,
                [gradient for _, gradient in pairs],
                retain_graph=True,  # whoever goes back twice comes here twice
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        return None, *found
