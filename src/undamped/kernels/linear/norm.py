"""What a block does before its layer: v = (e − mean) / √(variance + ε) of every row.

On the CPU it is one pass each way, and of e nothing is kept: v and one number a row are enough.
Elsewhere, and for compilers, it is torch's layer normalisation.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.rows import rows_of
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.operator import eager_function
from undamped.kernels.shared.threads import over_columns


def row_norm(e: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return v, and e for whoever needs it too: their gradients then meet in one pass.

    Args:
        e: (…, features).
        epsilon: What is added to the variance.
    """
    if implementation(e) == "numba":
        v, _, same = _eager(e, epsilon)
        return v, same
    return F.layer_norm(e, e.shape[-1:], eps=epsilon), e


def _forward(e: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.linear import norm_compiled as kernels

    rows = rows_of(e)
    v, scales = empty(rows.shape, rows), rows.new_empty(len(rows))
    arrays = rows.numpy(), v.numpy(), scales.numpy()
    over_columns(kernels.forward, rows.shape[1], len(rows), epsilon, *arrays)
    return v.view(e.shape), scales, e


def _save(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor, Tensor]) -> None:
    v, scales, _ = outputs
    ctx.mark_non_differentiable(scales)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(v, scales)


def _backward(
    ctx: Any, gradient: Tensor | None, _: Any, grad_e: Tensor | None
) -> tuple[Tensor | None, None]:
    from undamped.kernels.linear import norm_compiled as kernels

    if gradient is None:
        return grad_e, None
    v, scales = ctx.saved_tensors
    grads = rows_of(gradient)
    result = empty(grads.shape, grads)
    grad_rows = result if grad_e is None else rows_of(grad_e)  # which is then not read
    arrays = (rows_of(v), scales, grads, grad_rows, result)
    over_columns(
        kernels.backward(grad_e is not None),
        grads.shape[1],
        len(grads),
        *(array.numpy() for array in arrays),
    )
    return result.view(v.shape), None


_eager = eager_function(_forward, _save, _backward)
