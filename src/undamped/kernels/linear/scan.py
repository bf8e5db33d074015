"""`linear_scan`: recurrences h' = a h + u as one operator, for numbers, complex numbers and pairs.

Units are independent. The coefficient a is the same at every step or varies; it is a number, a
complex number, or a 2×2 matrix for units whose state is a pair. The backward pass needs the states
alone, which are the outputs, and is the same scan from the end.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from undamped._base.errors import ShapeError
from undamped.kernels.dispatch import implementation, runs_triton
from undamped.kernels.reference import reference_linear_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import Columns
from undamped.kernels.shared.operator import ScanOperator

SUMMED_STEPS = 1024
"""Steps whose gradients are summed in the dtype of the inputs before they are added in double."""

Form = Literal["numbers", "complex", "matrices"]


def linear_scan(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Iterate h' = a h + u for every unit.

    Args:
        inputs: u, (time, batch, hidden) real or complex; or (time, batch, hidden, 2) real, pairs
            that represent complex numbers or are multiplied by 2×2 matrices.
        coefficients: a, the same at every step or one for each: (hidden,) or (time, batch,
            hidden) real or complex; for pairs (hidden, 2) or (time, batch, hidden, 2), complex
            numbers, or (hidden, 2, 2) or (time, batch, hidden, 2, 2), matrices.
        state: h before the first step, (batch, hidden) or (batch, hidden, 2).
        lengths: (batch,), where sequences end: after that their states stay and their outputs are
            zero.

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
    """Return the form of the units; raise an error if shapes do not match."""
    shape, coefficient_shape = tuple(inputs.shape), tuple(coefficients.shape)
    forms: dict[Form, tuple[int, ...]] = {"numbers": ()} if len(shape) == 3 else {}
    if len(shape) == 4 and shape[3] == 2:
        forms = {"complex": (2,), "matrices": (2, 2)}
    for form, tail in forms.items():
        # By numbers of dimensions first: torch.compile adds a guard for every comparison.
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


def _forward(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    if runs_triton(inputs):
        from undamped.kernels.linear import gpu_scan

        return gpu_scan.forward(inputs, coefficients, state, lengths)
    outputs, form = empty(inputs.shape, inputs), _form(inputs, coefficients, state)
    final = _rows(state, form)
    if outputs.numel():
        per_step, constants = _constants(coefficients, inputs, form)
        columns = Columns()
        columns.run(
            columns.kernels("linear")[form, per_step is not None][0],
            [inputs.detach().contiguous(), *([] if per_step is None else [per_step]), outputs],
            constants,
            final,
            remaining=columns.remaining(lengths, 0, len(inputs)),
        )
    return outputs, _state(final, state)


def _backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    state: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    if runs_triton(outputs):
        from undamped.kernels.linear import gpu_scan

        return gpu_scan.backward(grad_outputs, grad_state, outputs, coefficients, state, lengths)
    form, grad_inputs = _form(outputs, coefficients, state), empty(outputs.shape, outputs)
    gradient = _rows(grad_state, form)
    if not outputs.numel():
        return grad_inputs, torch.zeros_like(coefficients), _state(gradient, state)
    per_step, constants = _constants(coefficients, outputs, form)
    grad_coefficients = None if per_step is None else empty(coefficients.shape, coefficients)
    states, columns = outputs.detach().contiguous(), Columns()
    kernel = columns.kernels("linear")[form, per_step is not None][1]
    sequences = [states, grad_outputs.contiguous(), per_step, grad_inputs, grad_coefficients]
    sums = torch.zeros(len(constants), *outputs.shape[1:3], dtype=torch.float64, device="cpu")
    begin = state.detach().contiguous()
    for start, stop in reversed(ranges(len(states), SUMMED_STEPS)):
        columns.run(
            kernel,
            [sequence[start:stop] for sequence in sequences if sequence is not None],
            constants,
            gradient,
            sums=sums,
            first=states[start - 1] if start else begin,
            remaining=columns.remaining(lengths, start, stop),
        )
    if grad_coefficients is None:
        total = sums.sum(1)
        if form == "complex":
            total = torch.stack([total[0] + total[3], total[2] - total[1]])
        grad_coefficients = total.t().reshape(coefficients.shape).to(coefficients.dtype)
    return grad_inputs, grad_coefficients, _state(gradient, state)


def _rows(state: Tensor, form: Form) -> Tensor:
    """Return a copy of a state as rows of columns: (1 or 2, batch, hidden)."""
    rows = state.detach().unsqueeze(0) if form == "numbers" else state.detach().movedim(-1, 0)
    return contiguous_copy(rows)


def _state(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows of columns as a state."""
    return rows[0] if like.dim() == 2 else rows.movedim(0, -1).contiguous()


def _constants(coefficients: Tensor, sequence: Tensor, form: Form) -> tuple[Tensor | None, Tensor]:
    """Return the coefficients per step, or None, and those that are constants of a scan."""
    values, hidden = coefficients.detach().contiguous(), sequence.shape[2]
    count = 1 if form == "numbers" else 4
    if values.dim() >= sequence.dim():
        return values, values.new_zeros(count, hidden)
    if form == "complex":
        a, b = values.unbind(-1)
        return None, torch.stack([a, -b, b, a])
    return None, values.view(hidden, count).t().contiguous()


_scan = ScanOperator(
    "linear_scan",
    _forward,
    _backward,
    outputs={"outputs": "inputs", "final": "state"},
    gradients=("inputs", "coefficients", "state"),
    devices=("cpu", "cuda"),
)
