"""What a linear layer shows: C s + d ⊙ u, a product and a factor for every feature.

On the CPU the second part is added where the first was written, and on the way back one pass gives
the gradients of u and d. Elsewhere, and for compilers, it is two operations of torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.rows import rows_of
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.operator import eager_function
from undamped.kernels.shared.threads import over_columns


def read_and_pass(s: Tensor, u: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Return C s + d ⊙ u.

    Args:
        s: (…, shown).
        u: (…, features).
        weight: C, (features, shown).
        factor: d, (features,).
    """
    if implementation(s, u, weight, factor) == "numba":
        return _eager(s, u, weight, factor)
    return torch.addcmul(F.linear(s, weight), factor, u)


def _forward(s: Tensor, u: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    from undamped.kernels.linear import reading_compiled as kernels

    states, inputs = rows_of(s), rows_of(u)
    out = empty(inputs.shape, inputs)
    torch.mm(states, weight.detach().t(), out=out)
    factors = factor.detach().contiguous().numpy()
    over_columns(
        kernels.add_scaled, inputs.shape[1], len(inputs), factors, inputs.numpy(), out.numpy()
    )
    return out.view(u.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    from undamped.kernels.linear import reading_compiled as kernels

    s, u, weight, factor = ctx.saved_tensors
    grads, inputs = rows_of(gradient), rows_of(u)
    of_passed, sums = empty(inputs.shape, inputs), np.zeros(inputs.shape[1])
    over_columns(
        kernels.add_scaled_backward,
        len(inputs),
        inputs.shape[1],
        factor.detach().contiguous().numpy(),
        inputs.numpy(),
        grads.numpy(),
        of_passed.numpy(),
        sums,
    )
    of_shown = torch.mm(grads, weight.detach(), out=empty(rows_of(s).shape, grads))
    of_weight = grads.t() @ rows_of(s)
    of_factor = torch.from_numpy(sums).to(factor.dtype)
    return of_shown.view(s.shape), of_passed.view(u.shape), of_weight, of_factor


_eager = eager_function(_forward, _save, _backward)
