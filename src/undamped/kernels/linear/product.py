"""A product over all steps whose result stays until the gradients are found: in large pages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.rows import rows_of
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.operator import eager_function


def stored_product(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return x Wᵀ, and x for whoever needs it too: the product's gradient is added to theirs.

    Added in place: the second result has to be read by one function alone, which makes a gradient
    of its own for it.

    Args:
        x: (…, features).
        weight: W, (made, features).
    """
    if implementation(x, weight) == "numba":
        return _eager(x, weight)
    return F.linear(x, weight), x


def _forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rows = rows_of(x)
    out = empty((len(rows), len(weight)), rows)
    torch.mm(rows, weight.detach().t(), out=out)
    return out.view(*x.shape[:-1], len(weight)), x


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], outputs: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)


def _backward(
    ctx: Any, gradient: Tensor | None, grad_x: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    if gradient is None:
        return grad_x, None
    x, weight = ctx.saved_tensors
    grads = rows_of(gradient)
    of_weight = grads.t() @ rows_of(x) if ctx.needs_input_grad[1] else None
    if not ctx.needs_input_grad[0]:
        return None, of_weight
    if grad_x is None:
        result = torch.mm(grads, weight, out=empty((len(grads), x.shape[-1]), grads))
    else:
        result = rows_of(grad_x).addmm_(grads, weight)
    return result.view(x.shape), of_weight


_eager = eager_function(_forward, _save, _backward)
