"""Linear recurrences against their equations in NumPy, for values and gradients."""

import numpy as np
import pytest
import torch

import undamped
from undamped import kernels
from undamped._base.errors import ShapeError
from undamped.kernels import linear_oscillator_scan, linear_scan
from undamped.kernels.linear.oscillator import CHECKPOINT_EVERY
from undamped.kernels.linear.scan import SUMMED_STEPS

FORMS = ["numbers", "complex", "pairs", "matrices"]
forms = pytest.mark.parametrize("form", FORMS)
per_step = pytest.mark.parametrize("per_step", [False, True])


def arguments(form, per_step, dtype=torch.float64, steps=7, batch=3, hidden=4):
    torch.manual_seed(0)
    kind = {torch.float64: torch.complex128, torch.float32: torch.complex64}[dtype]
    kind = kind if form == "complex" else dtype
    pair = () if form in ("numbers", "complex") else (2,)
    tail = (2, 2) if form == "matrices" else pair
    leading = (steps, batch, hidden) if per_step else (hidden,)
    shapes = [(steps, batch, hidden, *pair), (*leading, *tail), (batch, hidden, *pair)]
    inputs, coefficients, state = (torch.randn(shape, dtype=kind) for shape in shapes)
    coefficients *= 0.5
    return [t.requires_grad_() for t in (inputs, coefficients, state)]


def oracle(inputs, coefficients, state, lengths=None):
    """h' = a h + u, one number after the other."""
    steps, batch, hidden = inputs.shape[:3]
    pairs = inputs.ndim == 4
    fixed = coefficients.ndim < inputs.ndim
    outputs, last = np.zeros_like(inputs), state.copy()
    for b in range(batch):
        for unit in range(hidden):
            h = state[b, unit]
            for t in range(steps if lengths is None else lengths[b]):
                a = coefficients[unit] if fixed else coefficients[t, b, unit]
                if pairs and a.shape == (2,):
                    h = complex(*a) * complex(*h)
                    h = np.array([h.real, h.imag])
                else:
                    h = a @ h if pairs else a * h
                h = h + inputs[t, b, unit]
                outputs[t, b, unit] = h
            last[b, unit] = h
    return outputs, last


@pytest.mark.slow
@forms
@per_step
@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
def test_agrees_with_the_equation(form, per_step, lengths):
    inputs = arguments(form, per_step)
    ends = None if lengths is None else torch.tensor(lengths)
    expected = oracle(*(t.detach().numpy() for t in inputs), lengths)
    for context in (torch.no_grad(), undamped.plain_loops()):
        with context:
            got = linear_scan(*inputs, ends)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@forms
@per_step
@pytest.mark.parametrize("lengths", [None, [5, 2]])
def test_gradients(form, per_step, lengths):
    inputs = arguments(form, per_step, steps=5, batch=2, hidden=2)
    ends = None if lengths is None else torch.tensor(lengths)
    assert torch.autograd.gradcheck(lambda *t: linear_scan(*t, ends), inputs)


@pytest.mark.slow
@forms
@per_step
@pytest.mark.parametrize("ended", [False, True])
def test_gradients_of_several_sums(form, per_step, ended):
    """Sequences are longer than the steps whose gradients are summed at once."""
    steps = 2 * SUMMED_STEPS + 3
    inputs = arguments(form, per_step, steps=steps, batch=2, hidden=2)
    ends = torch.tensor([steps, SUMMED_STEPS + 2]) if ended else None
    assert torch.autograd.gradcheck(lambda *t: linear_scan(*t, ends), inputs, fast_mode=True)


@pytest.mark.slow
@forms
@per_step
def test_single_precision_over_many_columns(form, per_step):
    """More columns than a block has, in both precisions."""
    inputs = arguments(form, per_step, torch.float32, steps=20, batch=5, hidden=71)
    ends = torch.tensor([20, 3, 11, 20, 1])

    def gradients(tensors):
        outputs, last = linear_scan(*tensors, ends)
        loss = outputs.abs().square().sum() + last.real.sum()
        return torch.autograd.grad(loss, tensors)

    kinds = [torch.complex128 if t.is_complex() else torch.float64 for t in inputs]
    double = [t.detach().to(kind).requires_grad_() for t, kind in zip(inputs, kinds, strict=True)]
    for got, expected in zip(gradients(inputs), gradients(double), strict=True):
        torch.testing.assert_close(got.to(expected.dtype), expected, rtol=2e-4, atol=2e-4)


@forms
def test_pieces_have_the_bits_of_the_whole(form):
    inputs, coefficients, state = arguments(form, False, torch.float32, 40, 3, 33)
    with torch.no_grad():
        full, last = linear_scan(inputs, coefficients, state)
        outputs = []
        for piece in (inputs[:1], inputs[1:17], *inputs[17:].split(1)):
            output, state = linear_scan(piece, coefficients, state)
            outputs.append(output)
    assert torch.equal(torch.cat(outputs), full) and torch.equal(state, last)


def test_what_lies_beyond_an_end_is_not_looked_at():
    inputs = arguments("numbers", True)
    with torch.no_grad():
        inputs[0][2:, 1] = torch.nan
        inputs[1][2:, 1] = torch.nan
    outputs, last = linear_scan(*inputs, torch.tensor([7, 2, 7]))
    result = torch.autograd.grad(outputs.sum() + last.sum(), inputs)
    assert all(part.isfinite().all() for part in (outputs, last, *result))


@pytest.mark.slow
def test_the_operators_are_registered_properly():
    for form in ("numbers", "matrices"):
        inputs = arguments(form, form == "numbers", torch.float32)
        for lengths in (None, torch.tensor([7, 2, 1])):
            torch.library.opcheck(torch.ops.undamped.linear_scan.default, (*inputs, lengths))
    inputs, _, coefficients, state = oscillators(torch.float32)
    for reversible in (False, True):
        torch.library.opcheck(
            torch.ops.undamped.linear_oscillator_scan.default,
            (inputs, coefficients, *state, reversible, None),
        )


def test_shapes_that_do_not_fit_are_refused():
    inputs, coefficients, state = arguments("numbers", False)
    for wrong in ((inputs, coefficients[:2], state), (inputs, coefficients, state[:2])):
        with pytest.raises(ShapeError, match="linear_scan: the shapes"):
            linear_scan(*wrong)


def test_no_steps_and_no_sequences():
    for steps, batch in ((0, 3), (4, 0)):
        inputs = arguments("pairs", False, steps=steps, batch=batch)
        outputs, last = linear_scan(*inputs)
        assert outputs.shape == (steps, batch, 4, 2)
        result = torch.autograd.grad(outputs.sum() + last.sum(), inputs)
        assert all(g.shape == t.shape for g, t in zip(result, inputs, strict=True))


# Oscillators


def oscillators(dtype=torch.float64, steps=9, batch=3, hidden=4):
    torch.manual_seed(1)
    inputs = torch.randn(steps, batch, hidden, dtype=dtype, requires_grad=True)
    coefficients = torch.rand(4, hidden, dtype=dtype).requires_grad_()
    state = [torch.randn(batch, hidden, dtype=dtype, requires_grad=True) for _ in (1, 2)]
    return inputs, list(coefficients.unbind(0)), coefficients, state


def oscillator_oracle(u, a, k, f, s, x, z, lengths):
    outputs, x, z = np.zeros_like(u), x.copy(), z.copy()
    for b in range(u.shape[1]):
        for t in range(u.shape[0] if lengths is None else lengths[b]):
            z[b] = a * z[b] - k * x[b] + f * u[t, b]
            x[b] = x[b] + s * z[b]
            outputs[t, b] = x[b]
    return outputs, x, z


@pytest.mark.slow
@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_oscillators_are_their_equation(damped, several, ended):
    """With several checkpoints, fewer derivatives are compared."""
    steps = 2 * CHECKPOINT_EVERY + 9 if several else 9
    inputs, (a, k, f, s), _, state = oscillators(steps=steps)
    lengths = [steps, 2, steps // 2 + 1] if ended else None
    ends = None if lengths is None else torch.tensor(lengths)
    a = a if damped else None

    def run(inputs, coefficients, x, z):
        keep, *others = coefficients.unbind(0)
        keep = keep if damped else None
        outputs, final = linear_oscillator_scan(inputs, keep, *others, (x, z), ends)
        return (outputs, *final)

    numbers = [np.ones(4) if a is None else a.detach().numpy()]
    numbers += [t.detach().numpy() for t in (k, f, s, *state)]
    reference = oscillator_oracle(inputs.detach().numpy(), *numbers, lengths)
    together = torch.stack([k if a is None else a, k, f, s]).detach().requires_grad_()
    for got, expected in zip(run(inputs, together, *state), reference, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(run, (inputs, together, *state), fast_mode=several)


@pytest.mark.parametrize("damped", [False, True])
def test_long_oscillations_in_single_precision(damped):
    """Gradients of thousands of steps, run backwards or again, are those of the plain loop."""
    torch.manual_seed(0)
    inputs = torch.randn(3000, 1, 5, requires_grad=True)
    step, pull = torch.rand(5) * 0.2 + 0.1, torch.rand(5) * 0.2 + 0.05
    keep = 1 - 0.01 * torch.rand(5) if damped else None
    state = (torch.zeros(1, 5), torch.zeros(1, 5))
    numbers = [step.clone().requires_grad_(), pull.requires_grad_()]

    def gradients(kind):
        s, k, u = (t.to(kind) for t in (*numbers, inputs))
        a = None if keep is None else keep.to(kind)
        start = tuple(part.to(kind) for part in state)
        outputs, _ = linear_oscillator_scan(u, a, k, s, s, start)
        return torch.autograd.grad(outputs.square().mean(), (*numbers, inputs))

    for got, expected in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        error = torch.linalg.norm(got - expected) / torch.linalg.norm(expected)
        assert error < 3e-3


def test_pieces_of_oscillations_have_the_bits_of_the_whole():
    inputs, numbers, _, state = oscillators(torch.float32, 30, 3, 33)
    with torch.no_grad():
        full, last = linear_oscillator_scan(inputs, *numbers, tuple(state))
        outputs, state = [], tuple(state)
        for piece in (inputs[:13], *inputs[13:].split(1)):
            output, state = linear_oscillator_scan(piece, *numbers, state)
            outputs.append(output)
    assert torch.equal(torch.cat(outputs), full)
    assert all(torch.equal(a, b) for a, b in zip(state, last, strict=True))


def scans_with(lengths):
    """Call every public scan over four steps of three sequences of two units."""
    u, a, h = torch.ones(4, 3, 2), torch.ones(2), torch.zeros(3, 2)
    yield lambda: kernels.linear_scan(u, a, h, lengths)
    yield lambda: kernels.linear_oscillator_scan(u, None, a, a, a, (h, h), lengths)
    yield lambda: kernels.oscillator_scan(u, a, a, 1.0, (h, h), lengths)
    yield lambda: kernels.independent_layer(u, torch.eye(2), a, a, h, "relu", lengths)
    layer = kernels.Layer(torch.eye(2), a, a, a, 1.0, (0,), (2,))
    yield lambda: kernels.oscillator_stack(u, [layer], (h[None], h[None]), lengths=lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths", [[2], [1] * 6, [-1, 2, 3], [1, 2, 5], [[1, 2, 3]], [1.0, 2.0, 3.0]], ids=str
)
def test_lengths_that_do_not_fit_are_refused(lengths):
    for scan in scans_with(torch.tensor(lengths)):
        with pytest.raises(ShapeError, match="3 whole numbers from 0 to 4"):
            scan()
    for scan in scans_with(torch.tensor([0, 4, 2], dtype=torch.int8)):
        scan()


def test_tensors_of_other_shapes_are_refused():
    u, a, h, long = torch.ones(4, 3, 2), torch.ones(2), torch.zeros(3, 2), torch.ones(3)
    for argument, scan in {
        "stiffness": lambda: kernels.linear_oscillator_scan(u, None, long, a, a, (h, h)),
        "decay": lambda: kernels.linear_oscillator_scan(u, long, a, a, a, (h, h)),
        "velocity": lambda: kernels.linear_oscillator_scan(u, None, a, a, a, (h, h[:1])),
        "step": lambda: kernels.oscillator_scan(u, a, long, 1.0, (h, h)),
        "position": lambda: kernels.oscillator_scan(u, a, a, 1.0, (h[:1], h)),
        "bias": lambda: kernels.independent_layer(u, torch.eye(2), long, a, h),
        "state": lambda: kernels.independent_layer(u, torch.eye(2), a, a, h[:1]),
    }.items():
        with pytest.raises(ShapeError, match=f"{argument} must have shape"):
            scan()


def test_a_state_that_would_be_cut_is_refused():
    u, a, h = torch.ones(4, 3, 2), torch.ones(2), torch.zeros(3, 2)
    with pytest.raises(ShapeError, match=r"state is torch\.complex128.* are torch\.complex64"):
        kernels.linear_scan(u.to(torch.complex64), a, h.to(torch.complex128))
    with pytest.raises(ShapeError, match=r"state is torch\.complex64.* are torch\.float32"):
        kernels.linear_scan(u, a, h.to(torch.complex64))
    kernels.linear_scan(u.to(torch.complex64), a, h)
