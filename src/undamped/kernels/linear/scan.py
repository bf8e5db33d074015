"""`linear_scan`: recurrences h' = a h + u as one operator, for numbers, complex numbers and pairs.

Units do not see each other. The coefficient a is the same at every step or comes with the inputs;
it is a number, a complex number, or a 2×2 matrix for units whose state is a pair. The backward pass
needs the states alone, which are the outputs, and is the same scan from the end.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import ShapeError, explain
from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_linear_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.eager_function import eager_function
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.threads import over_columns

SUMMED_STEPS = 1024
"""Steps whose gradients are summed in the type of the inputs, before a sum in double precision."""

Form = Literal["numbers", "complex", "matrices"]


def linear_scan(
    inputs: Tensor,
    coefficients: Tensor,
    state: Tensor,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Iterate h' = a h + u for every unit.

    Args:
        inputs: u, (time, batch, hidden) real or complex; or (time, batch, hidden, 2) real, pairs
            that stand for complex numbers or are moved by 2×2 matrices.
        coefficients: a, the same at every step or one for each: (hidden,) or (time, batch,
            hidden) real or complex; for pairs (hidden, 2) or (time, batch, hidden, 2), complex
            numbers, or (hidden, 2, 2) or (time, batch, hidden, 2, 2), matrices.
        state: h before the first step, (batch, hidden) or (batch, hidden, 2).
        lengths: (batch,), where sequences end: their states rest and their outputs are zero from
            there on.

    Returns:
        All states, in the shape of the inputs, and the last one.

    Example:
        >>> states, last = linear_scan(torch.randn(100, 4, 8), torch.rand(8), torch.zeros(4, 8))
    """
    if inputs.is_complex() or coefficients.is_complex() or state.is_complex():
        kind = torch.promote_types(inputs.dtype, coefficients.dtype)
        if torch.promote_types(kind, state.dtype) != kind:
            raise ShapeError(
                explain(
                    "linear_scan state",
                    expected=f"numbers that {kind} can hold, the type of inputs and coefficients",
                    got=state.dtype,
                    remedy="Convert the inputs by .to(state.dtype), or the state.",
                )
            )
        u, a, h = (
            torch.view_as_real(t.to(kind).resolve_conj()) for t in (inputs, coefficients, state)
        )
        outputs, final = linear_scan(u, a, h, lengths)
        return torch.view_as_complex(outputs), torch.view_as_complex(final)
    _form(inputs, coefficients, state)
    check_lengths("linear_scan", lengths, inputs.shape[0], inputs.shape[1])
    way = implementation(inputs, coefficients, state, gpu=True)
    if way == "reference":
        return reference_linear_scan(inputs, coefficients, state, lengths)
    run = {"operator": _scan, "numba": _eager_scan, "triton": _gpu_scan}[way]
    return run(inputs, coefficients, state, lengths)


def _form(inputs: Tensor, coefficients: Tensor, state: Tensor) -> Form:
    """Say what the units are, or that the shapes do not fit each other."""
    shape, own = tuple(inputs.shape), tuple(coefficients.shape)
    forms: dict[Form, tuple[int, ...]] = {"numbers": ()} if len(shape) == 3 else {}
    if len(shape) == 4 and shape[3] == 2:
        forms = {"complex": (2,), "matrices": (2, 2)}
    for form, tail in forms.items():
        # By their numbers of dimensions first: a compiler would take note of every comparison.
        fixed, stepwise = shape[2:3] + tail, shape[:3] + tail
        fits = own == (fixed if len(own) == len(fixed) else stepwise)
        if len(own) in (len(fixed), len(stepwise)) and fits and tuple(state.shape) == shape[1:]:
            return form
    raise ShapeError(
        explain(
            "linear_scan",
            expected="inputs (time, batch, hidden) with coefficients (hidden,) or (time, batch, "
            "hidden), or pairs with complex numbers or 2×2 matrices, and a state like one step",
            got=f"{shape}, {own} and {tuple(state.shape)}",
            remedy="See help(linear_scan) for the shapes.",
        )
    )


class _Arrays(NamedTuple):
    """What the kernels read beside sequences."""

    form: Form
    per_step: bool
    fixed: Any
    stepwise: Any
    steps: int
    columns: int
    hidden: int

    def kernel(self, name: str, masked: bool) -> Any:
        from undamped.kernels.linear import compiled as kernels

        if self.form == "numbers":
            return getattr(kernels, name)(self.per_step, masked)
        return getattr(kernels, f"pair_{name}")(self.per_step, self.form == "complex", masked)

    def rows(self, tensor: Tensor) -> Any:
        """Return a sequence as the kernels see it, (steps, numbers of a step)."""
        return tensor.detach().contiguous().view(len(tensor), -1).numpy()

    def of_columns(self, tensor: Tensor) -> Any:
        """Return a state as the kernels see it, (columns,) or (columns, 2)."""
        flat = tensor.view(-1) if self.form == "numbers" else tensor.view(-1, 2)
        return flat.numpy()


def _arrays(inputs: Tensor, coefficients: Tensor, state: Tensor) -> _Arrays:
    form, hidden = _form(inputs, coefficients, state), inputs.shape[2]
    plain = coefficients.detach().contiguous()
    per_step = plain.dim() >= inputs.dim()
    steps, columns = inputs.shape[0], inputs.shape[1] * hidden
    nothing = plain.new_empty((1, 0)).numpy()
    if form == "numbers":
        fixed = nothing[0] if per_step else plain.numpy()
    elif per_step:
        fixed = np.zeros((1, 4), nothing.dtype)  # which nobody reads
    elif form == "complex":
        a, b = plain.unbind(-1)
        fixed = torch.stack([a, -b, b, a], -1).numpy()
    else:
        fixed = plain.view(hidden, 4).numpy()
    stepwise = plain.view(steps, -1).numpy() if per_step else nothing
    return _Arrays(form, per_step, fixed, stepwise, steps, columns, hidden)


def _forward(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    outputs, final = empty(inputs.shape, inputs), contiguous_copy(state)
    if outputs.numel():
        own = _arrays(inputs, coefficients, state)
        unused = np.zeros(own.columns, own.stepwise.dtype)
        masked, remaining = remaining_by_column(lengths, 0, own.steps, own.hidden, unused)
        over_columns(
            own.kernel("forward", masked),
            own.steps,
            own.columns,
            own.rows(inputs),
            own.fixed,
            own.stepwise,
            own.rows(outputs),
            own.of_columns(final),
            remaining,
        )
    return outputs, final


_scan = torch.library.custom_op(
    "undamped::linear_scan", _forward, mutates_args=(), device_types="cpu"
)


@_scan.register_fake
def _scan_shapes(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    return inputs.new_empty(inputs.shape), state.new_empty(state.shape)


def _backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    state: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_inputs, gradient = empty(outputs.shape, outputs), contiguous_copy(grad_state)
    if not outputs.numel():
        return grad_inputs, torch.zeros_like(coefficients), gradient
    own = _arrays(outputs, coefficients, state)
    per_step = empty(coefficients.shape, coefficients) if own.per_step else None
    nothing = own.stepwise[:, :0] if own.per_step else own.stepwise
    rows = [own.rows(t) for t in (outputs, grad_outputs, grad_inputs)]
    written = nothing if per_step is None else per_step.view(own.steps, -1).numpy()
    numbers = () if own.form == "numbers" else (4,)
    sums = torch.zeros((*numbers, own.columns), dtype=torch.float64, device="cpu")
    unused = np.zeros(own.columns, own.stepwise.dtype)
    begin = state.detach().contiguous().view(-1).numpy()
    for start, stop in reversed(ranges(own.steps, SUMMED_STEPS)):
        masked, remaining = remaining_by_column(lengths, start, stop, own.hidden, unused)
        over_columns(
            own.kernel("backward", masked),
            stop - start,
            own.columns,
            *(sequence[start:stop] for sequence in rows),
            rows[0][start - 1] if start else begin,
            own.fixed,
            own.stepwise[start:stop] if own.per_step else own.stepwise,
            own.of_columns(gradient),
            sums.numpy(),
            written[start:stop] if own.per_step else written,
            remaining,
        )
    if per_step is None:
        per_step = _summed(sums, own.form, coefficients)
    return grad_inputs, per_step, gradient


def _summed(sums: Tensor, form: Form, coefficients: Tensor) -> Tensor:
    """Return the gradient of coefficients that are the same at every step and in every sequence."""
    total = sums.view(*sums.shape[:-1], -1, coefficients.shape[0]).sum(-2)
    if form == "complex":
        total = torch.stack([total[0] + total[3], total[2] - total[1]], -1)
    elif form == "matrices":
        total = total.t().reshape(coefficients.shape)
    return total.to(coefficients.dtype)


_scan_backward = torch.library.custom_op(
    "undamped::linear_scan_backward", _backward, mutates_args=(), device_types="cpu"
)


@_scan_backward.register_fake
def _scan_backward_shapes(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    state: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    a, b, c = (like.new_empty(like.shape) for like in (outputs, coefficients, state))
    return a, b, c


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, coefficients, state, lengths = inputs
    ctx.save_for_backward(output[0], coefficients, state, lengths)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    return (*_scan_backward(*grads, *ctx.saved_tensors), None)


_scan.register_autograd(_differentiate, setup_context=_save)
_eager_scan = eager_function(
    _forward, _save, lambda ctx, *grads: (*_backward(*grads, *ctx.saved_tensors), None)
)


@_scan.register_kernel("cuda")
def _gpu_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    from undamped.kernels.linear import gpu_scan

    return gpu_scan.forward(*arguments)


@_scan_backward.register_kernel("cuda")
def _gpu_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.linear import gpu_scan

    return gpu_scan.backward(*arguments)


_gpu_scan = eager_function(
    _gpu_forward, _save, lambda ctx, *grads: (*_gpu_backward(*grads, *ctx.saved_tensors), None)
)
