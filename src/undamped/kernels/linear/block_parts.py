"""The parts of a block around its linear recurrence: norm, input, output, gate.

On the CPU each elementwise part is one pass over rows, and little is saved for the backward pass.
On other devices, and for compilers, each part is a few operations of torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.operator import eager_function
from undamped.kernels.shared.threads import over_columns


def rows_of(tensor: Tensor) -> Tensor:
    """Return (…, features) as contiguous rows (rows, features)."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).contiguous()


def mask_rows(mask: Tensor | None, like: Tensor) -> Any:
    """Return a mask (1, batch, features) as rows; a row of ones for None."""
    return like.new_ones(1, like.shape[-1]).numpy() if mask is None else rows_of(mask).numpy()


def _over_rows(name: str, rows: Tensor, *arguments: Any) -> None:
    """Run a compiled kernel over all rows; tensors among its arguments become arrays."""
    from undamped.kernels.linear import rows_compiled

    arrays = [each.numpy() if isinstance(each, Tensor) else each for each in arguments]
    over_columns(getattr(rows_compiled, name), rows.shape[1], rows.shape[0], *arrays)


def row_norm(e: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return v = (e − mean)/√(variance + ε), and e.

    Since e is returned too, its gradients are summed in one pass. Only v and a number per row are
    saved.

    Args:
        e: (…, features).
        epsilon: The number added to the variance.
    """
    if implementation(e) == "numba":
        v, _, same = _norm(e, epsilon)
        return v, same
    return F.layer_norm(e, e.shape[-1:], eps=epsilon), e


def _norm_forward(e: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    rows = rows_of(e)
    v, scales = empty(rows.shape, rows), rows.new_empty(len(rows))
    _over_rows("normalise", rows, epsilon, rows, v, scales)
    return v.view(e.shape), scales, e


def _norm_save(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor, Tensor]) -> None:
    v, scales, _ = outputs
    ctx.mark_non_differentiable(scales)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(v, scales)


def _norm_backward(
    ctx: Any, gradient: Tensor | None, _: Any, grad_e: Tensor | None
) -> tuple[Tensor | None, None]:
    if gradient is None:
        return grad_e, None
    v, scales = ctx.saved_tensors
    grads = rows_of(gradient)
    result = empty(grads.shape, grads)
    adds = grad_e is not None
    grad_rows = rows_of(grad_e) if adds else result  # a placeholder, not read
    _over_rows("normalise_backward", grads, rows_of(v), scales, grads, grad_rows, adds, result)
    return result.view(v.shape), None


_norm = eager_function(_norm_forward, _norm_save, _norm_backward)


def stored_product(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return x Wᵀ in memory that is reused (`allocate`), and x.

    The product's gradient is added in place to that of the second result. So only one function may
    use the second result, and it has to allocate the gradient.

    Args:
        x: (…, features).
        weight: W, (products, features).
    """
    if implementation(x, weight) == "numba":
        return _product(x, weight)
    return F.linear(x, weight), x


def _product_forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rows = rows_of(x)
    out = empty((len(rows), len(weight)), rows)
    torch.mm(rows, weight.detach().t(), out=out)
    return out.view(*x.shape[:-1], len(weight)), x


def _product_save(ctx: Any, inputs: tuple[Tensor, Tensor], outputs: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)


def _product_backward(
    ctx: Any, gradient: Tensor | None, grad_x: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    if gradient is None:
        return grad_x, None
    x, weight = ctx.saved_tensors
    grads = rows_of(gradient)
    grad_weight = grads.t() @ rows_of(x) if ctx.needs_input_grad[1] else None
    if not ctx.needs_input_grad[0]:
        return None, grad_weight
    if grad_x is None:
        result = torch.mm(grads, weight, out=empty((len(grads), x.shape[-1]), grads))
    else:
        result = rows_of(grad_x).addmm_(grads, weight)
    return result.view(x.shape), grad_weight


_product = eager_function(_product_forward, _product_save, _product_backward)


def read_and_pass(s: Tensor, u: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Return C s + d ⊙ u.

    Args:
        s: (…, visible).
        u: (…, features).
        weight: C, (features, visible).
        factor: d, (features,).
    """
    if implementation(s, u, weight, factor) == "numba":
        return _reading(s, u, weight, factor)
    return torch.addcmul(F.linear(s, weight), factor, u)


def _reading_forward(s: Tensor, u: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    states, inputs = rows_of(s), rows_of(u)
    out = empty(inputs.shape, inputs)
    torch.mm(states, weight.detach().t(), out=out)
    _over_rows("add_scaled", inputs, factor.detach().contiguous(), inputs, out)
    return out.view(u.shape)


def _reading_save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _reading_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    s, u, weight, factor = ctx.saved_tensors
    grads, inputs = rows_of(gradient), rows_of(u)
    grad_u, sums = empty(inputs.shape, inputs), np.zeros(inputs.shape[1])
    arrays = (factor.detach().contiguous(), inputs, grads, grad_u, sums)
    # Over features, not rows, so that no two threads add to the same sum.
    _over_rows("add_scaled_backward", inputs.t(), *arrays)
    grad_s = torch.mm(grads, weight.detach(), out=empty(rows_of(s).shape, grads))
    grad_weight = grads.t() @ rows_of(s)
    grad_factor = torch.from_numpy(sums).to(factor.dtype)
    return grad_s.view(s.shape), grad_u.view(u.shape), grad_weight, grad_factor


_reading = eager_function(_reading_forward, _reading_save, _reading_backward)


def gated_unit(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, masks: tuple[Tensor, ...] = ()
) -> Tensor:
    """Return e + (W₁ g + b₁) ⊙ σ̂(W₂ g + b₂), g = gelu(r), in tanh's form.

    Args:
        r: (…, units).
        e: (…, features).
        weight: (2 × features, units), W₁ above W₂.
        bias: (2 × features,).
        masks: (1, batch, units) and (1, batch, features), factors on g and on the summand of e;
            or none. With masks r is (time, batch, units).
    """
    if implementation(r, e, weight, bias, *masks) == "numba":
        return _gate(r, e, weight, bias, *(masks or (None, None)))[0]
    return reference_gated_unit(r, e, weight, bias, masks)


def reference_gated_unit(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, masks: tuple[Tensor, ...] = ()
) -> Tensor:
    """The reference in operations of torch, which also runs for single steps."""
    g = F.gelu(r, approximate="tanh")
    if masks:
        g = g * masks[0]
    added = F.glu(F.linear(g, weight, bias))
    return e + (added * masks[1] if masks else added)


def _gelu(rows: Tensor, mask: Any) -> Tensor:
    g = empty(rows.shape, rows)
    _over_rows("gelu", rows, rows, mask, g)
    return g


def _gate_forward(
    r: Tensor, e: Tensor, weight: Tensor, bias: Tensor, first: Tensor | None, second: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows, residual = rows_of(r), rows_of(e)
    both = empty((len(rows), len(weight)), rows)
    torch.mm(_gelu(rows, mask_rows(first, rows)), weight.detach().t(), out=both)
    out = empty(residual.shape, residual)
    constants = bias.detach().contiguous(), mask_rows(second, residual)
    _over_rows("gated", residual, both, *constants, residual, out)
    return out.view(e.shape), both


def _gate_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    r, _, weight, _, first, second = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # zeros instead of None would be as large as the tensors
    ctx.save_for_backward(r, weight, first, second, output[1])


def _gate_backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 6
    r, weight, first, second, both = ctx.saved_tensors
    rows, grads = rows_of(r), rows_of(gradient)
    grad_both, mask = empty(both.shape, both), mask_rows(first, rows)
    _over_rows("gated_backward", grads, both, mask_rows(second, grads), grads, grad_both)
    grad_weight = grad_both.t() @ _gelu(rows, mask)
    grad_r = torch.mm(grad_both, weight.detach(), out=empty(rows.shape, rows))
    _over_rows("gelu_backward", rows, rows, mask, grad_r)
    return grad_r.view(r.shape), gradient, grad_weight, grad_both.sum(0), None, None


_gate = eager_function(_gate_forward, _gate_save, _gate_backward)
