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

from undamped._base.errors import ShapeError
from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_linear_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.operator import ScanOperator
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
                f"linear_scan: the state is {state.dtype}, but inputs and coefficients are {kind}. "
                "Convert the inputs by .to(state.dtype), or the state."
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
    return _scan(way, inputs, coefficients, state, lengths)


def _form(inputs: Tensor, coefficients: Tensor, state: Tensor) -> Form:
    """Say what the units are, or that the shapes do not fit each other."""
    shape, coefficient_shape = tuple(inputs.shape), tuple(coefficients.shape)
    forms: dict[Form, tuple[int, ...]] = {"numbers": ()} if len(shape) == 3 else {}
    if len(shape) == 4 and shape[3] == 2:
        forms = {"complex": (2,), "matrices": (2, 2)}
    for form, tail in forms.items():
        # By their numbers of dimensions first: a compiler would take note of every comparison.
        fixed, stepwise = shape[2:3] + tail, shape[:3] + tail
        fits = coefficient_shape == (fixed if len(coefficient_shape) == len(fixed) else stepwise)
        if (
            len(coefficient_shape) in (len(fixed), len(stepwise))
            and fits
            and tuple(state.shape) == shape[1:]
        ):
            return form
    raise ShapeError(
        f"linear_scan: the shapes {shape} of inputs, {coefficient_shape} of coefficients and "
        f"{tuple(state.shape)} of the state do not fit. See help(linear_scan)."
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
    unused = plain.new_empty((1, 0)).numpy()
    if form == "numbers":
        fixed = unused[0] if per_step else plain.numpy()
    elif per_step:
        fixed = np.zeros((1, 4), unused.dtype)  # which nobody reads
    elif form == "complex":
        a, b = plain.unbind(-1)
        fixed = torch.stack([a, -b, b, a], -1).numpy()
    else:
        fixed = plain.view(hidden, 4).numpy()
    stepwise = plain.view(steps, -1).numpy() if per_step else unused
    return _Arrays(form, per_step, fixed, stepwise, steps, columns, hidden)


def _forward(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    outputs, final = empty(inputs.shape, inputs), contiguous_copy(state)
    if outputs.numel():
        arrays = _arrays(inputs, coefficients, state)
        unused = np.zeros(arrays.columns, arrays.stepwise.dtype)
        masked, remaining = remaining_by_column(lengths, 0, arrays.steps, arrays.hidden, unused)
        over_columns(
            arrays.kernel("forward", masked),
            arrays.steps,
            arrays.columns,
            arrays.rows(inputs),
            arrays.fixed,
            arrays.stepwise,
            arrays.rows(outputs),
            arrays.of_columns(final),
            remaining,
        )
    return outputs, final


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
    arrays = _arrays(outputs, coefficients, state)
    per_step = empty(coefficients.shape, coefficients) if arrays.per_step else None
    no_rows = arrays.stepwise[:, :0] if arrays.per_step else arrays.stepwise
    rows = [arrays.rows(t) for t in (outputs, grad_outputs, grad_inputs)]
    grad_stepwise = no_rows if per_step is None else per_step.view(arrays.steps, -1).numpy()
    numbers = () if arrays.form == "numbers" else (4,)
    sums = torch.zeros((*numbers, arrays.columns), dtype=torch.float64, device="cpu")
    unused = np.zeros(arrays.columns, arrays.stepwise.dtype)
    begin = state.detach().contiguous().view(-1).numpy()
    for start, stop in reversed(ranges(arrays.steps, SUMMED_STEPS)):
        masked, remaining = remaining_by_column(lengths, start, stop, arrays.hidden, unused)
        over_columns(
            arrays.kernel("backward", masked),
            stop - start,
            arrays.columns,
            *(sequence[start:stop] for sequence in rows),
            rows[0][start - 1] if start else begin,
            arrays.fixed,
            arrays.stepwise[start:stop] if arrays.per_step else arrays.stepwise,
            arrays.of_columns(gradient),
            sums.numpy(),
            grad_stepwise[start:stop] if arrays.per_step else grad_stepwise,
            remaining,
        )
    if per_step is None:
        per_step = _summed(sums, arrays.form, coefficients)
    return grad_inputs, per_step, gradient


def _summed(sums: Tensor, form: Form, coefficients: Tensor) -> Tensor:
    """Return the gradient of coefficients that are the same at every step and in every sequence."""
    total = sums.view(*sums.shape[:-1], -1, coefficients.shape[0]).sum(-2)
    if form == "complex":
        total = torch.stack([total[0] + total[3], total[2] - total[1]], -1)
    elif form == "matrices":
        total = total.t().reshape(coefficients.shape)
    return total.to(coefficients.dtype)


_scan = ScanOperator(
    "linear_scan",
    _forward,
    _backward,
    outputs={"outputs": "inputs", "final": "state"},
    gradients=("inputs", "coefficients", "state"),
    gpu="undamped.kernels.linear.gpu_scan",
)
