"""The eager side of a registered operator: the same function of torch without the operator.

Calling an operator of `torch.library` from Python brings in torch's compiler, which takes seconds
to import, and costs more than a short scan at every call. So eager calls take an ordinary autograd
function, made from the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from undamped._base.errors import OptionError, explain


def eager_function(
    run: Callable[..., Any], save: Callable[..., None], differentiate: Callable[..., Any]
) -> Callable[..., Any]:
    """Return `run` as a differentiable function.

    Args:
        run: The forward pass.
        save: Called with the context, the inputs and the outputs of `run`.
        differentiate: Called with the context and the gradients of the outputs.
    """

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            outputs = run(*inputs)
            save(ctx, inputs, outputs)
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            refuse_second_derivatives()
            return differentiate(ctx, *gradients)

    return Eager.apply


def refuse_second_derivatives() -> None:
    """Say so if the gradient is to be differentiated again."""
    if torch.is_grad_enabled():
        raise OptionError(
            explain(
                "second derivatives of a recurrent network",
                expected="a forward pass inside `with undamped.plain_loops():`",
                got="one by the compiled kernels, which have first derivatives only",
                remedy="Wrap the forward pass, or leave create_graph=True out.",
            )
        )
