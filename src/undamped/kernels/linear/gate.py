"""What a block does behind its layer: e + (W₁ g + b₁) ⊙ σ̂(W₂ g + b₂), g = gelu(r).

On the CPU each elementwise part is one pass, and of g nothing is kept: it is computed again.
Elsewhere, and for compilers, it is a few operations of torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.rows import rows_of
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.operator import eager_function
from undamped.kernels.shared.threads import over_columns


def gated_unit(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, masks: tuple[Tensor, ...] = ()
) -> Tensor:
    """Return e + (W₁ g + b₁) ⊙ σ̂(W₂ g + b₂), g = gelu(r), in tanh's form.

    Args:
        r: (…, units).
        e: (…, features).
        weight: (2 × features, units), W₁ above W₂.
        bias: (2 × features,).
        masks: (1, batch, units) and (1, batch, features), factors on g and on what is added to e;
            or none. With masks r is (time, batch, units).
    """
    if implementation(r, e, weight, bias, *masks) == "numba":
        return _eager_unit(r, e, weight, bias, *(masks or (None, None)))
    return reference_gated_unit(r, e, weight, bias, masks)


def reference_gated_unit(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, masks: tuple[Tensor, ...] = ()
) -> Tensor:
    """The same in operations of torch: its meaning, and what single steps do."""
    g = F.gelu(r, approximate="tanh")
    if masks:
        g = g * masks[0]
    added = F.glu(F.linear(g, weight, bias))
    return e + (added * masks[1] if masks else added)


def _mask(mask: Tensor | None, like: Tensor) -> Any:
    if mask is None:
        return like.new_ones(1, like.shape[-1]).numpy()
    return rows_of(mask).numpy()


def _over_rows(kernel: Any, rows: Tensor, *arguments: Any) -> None:
    over_columns(kernel, rows.shape[1], rows.shape[0], *arguments)


def _bent(rows: Tensor, mask: Any) -> Tensor:
    from undamped.kernels.linear import gate_compiled as kernels

    g = empty(rows.shape, rows)
    _over_rows(kernels.gelu, rows, rows.numpy(), mask, g.numpy())
    return g


def _forward(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, first: Tensor | None, second: Tensor | None
) -> tuple[Tensor, Tensor]:
    from undamped.kernels.linear import gate_compiled as kernels

    rows, residual = rows_of(r), rows_of(e)
    both = empty((len(rows), len(weight)), rows)
    torch.mm(_bent(rows, _mask(first, rows)), weight.detach().t(), out=both)
    out = empty(residual.shape, residual)
    constants = bias.detach().contiguous().numpy(), _mask(second, residual)
    _over_rows(kernels.gated, residual, both.numpy(), *constants, residual.numpy(), out.numpy())
    return out.view(e.shape), both


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    r, _, weight, _, first, second = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # zeros for what has no gradient would be as large as it
    ctx.save_for_backward(r, weight, first, second, output[1])


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    from undamped.kernels.linear import gate_compiled as kernels

    if gradient is None:
        return (None,) * 6
    r, weight, first, second, both = ctx.saved_tensors
    rows, grads = rows_of(r), rows_of(gradient)
    of_both, mask = empty(both.shape, both), _mask(first, rows)
    arrays = both.numpy(), _mask(second, grads), grads.numpy(), of_both.numpy()
    _over_rows(kernels.gated_backward, grads, *arrays)
    of_weight = of_both.t() @ _bent(rows, mask)
    of_r = torch.mm(of_both, weight.detach(), out=empty(rows.shape, rows))
    _over_rows(kernels.gelu_backward, rows, rows.numpy(), mask, of_r.numpy())
    return of_r.view(r.shape), gradient, of_weight, of_both.sum(0), None, None


_unit = eager_function(_forward, _save, _backward)


def _eager_unit(*inputs: Any) -> Tensor:
    return _unit(*inputs)[0]
