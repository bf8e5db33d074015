"""A product over all steps whose result stays until the gradients are found: in large pages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.rows import rows_of
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.eager_function import eager_function


def kept_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x Wᵀ.

    Args:
        x: (…, features).
        weight: W, (made, features).
    """
    if implementation(x, weight) == "numba":
        return _eager(x, weight)
    return F.linear(x, weight)


def _forward(x: Tensor, weight: Tensor) -> Tensor:
    rows = rows_of(x)
    out = empty((len(rows), len(weight)), rows)
    torch.mm(rows, weight.detach().t(), out=out)
    return out.view(*x.shape[:-1], len(weight))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    given = rows_of(gradient)
    of_x = torch.mm(given, weight).view(x.shape) if ctx.needs_input_grad[0] else None
    return of_x, given.t() @ rows_of(x) if ctx.needs_input_grad[1] else None


_eager = eager_function(_forward, _save, _backward)
