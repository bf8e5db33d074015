"""The oscillator scan against the paper's equations in NumPy, for values and gradients."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped.kernels import oscillator_scan, reference_oscillator_scan
from undamped.kernels.shared.tanh import sigmoid, tanh


@numba.vectorize(["float32(float32)", "float64(float64)"], nopython=True)
def tanh_array(x):
    return tanh(x)


@numba.vectorize(["float32(float32)", "float64(float64)"], nopython=True)
def sigmoid_array(x):
    return sigmoid(x)


@numba.njit(fastmath={"reassoc", "contract", "nsz"})  # as the memory kernels are compiled
def reordered(x):
    results = np.empty((2, len(x)), x.dtype)
    for j in range(len(x)):
        results[0, j] = tanh(x[j])
        results[1, j] = sigmoid(x[j])
    return results


EVERY_EXPONENT = np.concatenate(
    [sign * np.linspace(1, 2, 9) * 2.0**e for sign in (-1, 1) for e in range(-126, 127)]
).astype(np.float32)


def oracle(projected, weight, step, alpha, y, z, lengths=None):
    """Equation 6 of the paper, neuron by neuron."""
    positions = np.zeros_like(projected)
    y, z = y.copy(), z.copy()
    for n in range(projected.shape[0]):
        for b in range(projected.shape[1]):
            if lengths is not None and n >= lengths[b]:
                continue
            for i in range(projected.shape[2]):
                activation = np.tanh(weight[i] * y[b, i] + projected[n, b, i])
                z[b, i] = z[b, i] - step[i] * (activation + alpha * y[b, i])
                y[b, i] = y[b, i] + step[i] * z[b, i]
                positions[n, b, i] = y[b, i]
    return positions, y, z


def draw(seed, steps, batch, hidden, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    step = 0.3 * torch.rand(hidden, generator=generator, dtype=dtype)
    return (
        normal(steps, batch, hidden),
        normal(hidden),
        step,
        (
            normal(batch, hidden),
            normal(batch, hidden),
        ),
    )


@settings(deadline=None, max_examples=20)
@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 5),
    hidden=st.integers(1, 70),
    alpha=st.sampled_from([0.0, 1.0, 30.0]),
    single=st.booleans(),
    uneven=st.booleans(),
)
def test_agrees_with_the_equations(steps, batch, hidden, alpha, single, uneven):
    dtype = torch.float32 if single else torch.float64
    projected, weight, step, state = draw(steps, steps, batch, hidden, dtype)
    step = step * 0.3
    lengths = None
    if uneven:
        lengths = 1 + torch.arange(batch) * steps // (batch + 1)
    positions, (y, z) = oscillator_scan(projected, weight, step, alpha, state, lengths)
    arrays = [t.double().numpy() for t in (projected, weight, step)]
    expected = oracle(*arrays, alpha, *[t.double().numpy() for t in state], lengths)
    tolerance = 2e-4 if single else 1e-10
    for got, reference in zip((positions, y, z), expected, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.double().numpy(), reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("lengths", [None, [7, 1, 4]])
def test_gradients_of_everything(alpha, lengths):
    projected, weight, step, (y, z) = draw(1, 7, 3, 2)
    ends = None if lengths is None else torch.tensor(lengths)

    def run(projected, weight, step, y, z):
        positions, final = oscillator_scan(projected, weight, step, alpha, (y, z), ends)
        return positions, *final

    inputs = [t.requires_grad_() for t in (projected, weight, step, y, z)]
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_agree_with_the_plain_loop_over_several_pieces(dtype):
    projected, weight, step, (y, z) = draw(2, 600, 2, 33, dtype)
    step = step * 0.05
    inputs = [t.requires_grad_() for t in (projected, weight, step, y, z)]
    ends = torch.tensor([600, 301])

    def gradients(scan):
        positions, (a, b) = scan(projected, weight, step, 1.5, (y, z), ends)
        return torch.autograd.grad((positions**2).sum() + (a * b).sum(), inputs)

    tolerance = 5e-4 if dtype == torch.float32 else 1e-9
    for got, expected in zip(
        gradients(oscillator_scan), gradients(reference_oscillator_scan), strict=True
    ):
        torch.testing.assert_close(
            got, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max())
        )


def test_any_stride():
    projected, weight, step, (y, z) = draw(3, 9, 4, 6)
    turned = projected.transpose(0, 1).contiguous().transpose(0, 1)
    wide = torch.randn(6, 2, dtype=torch.float64)
    wide[:, 0] = weight
    expected, _ = oscillator_scan(projected, weight, step, 1.0, (y, z))
    got, _ = oscillator_scan(turned, wide[:, 0], step, 1.0, (y.t().contiguous().t(), z))
    assert torch.equal(got, expected)


def test_inputs_are_left_alone():
    projected, weight, step, (y, z) = draw(4, 9, 4, 6)
    copies = [t.clone() for t in (projected, weight, step, y, z)]
    oscillator_scan(projected, weight, step, 1.0, (y, z))
    for now, before in zip((projected, weight, step, y, z), copies, strict=True):
        assert torch.equal(now, before)


def test_a_nan_is_not_hidden():
    projected, weight, step, state = draw(5, 4, 1, 20, torch.float32)
    projected[2, 0, 3] = float("nan")
    positions, _ = oscillator_scan(projected, weight, step, 1.0, state)
    assert positions[2:, 0, 3].isnan().all()
    assert int(positions.isnan().sum()) == 2


def test_operator_is_registered_properly():
    projected, weight, step, (y, z) = draw(6, 5, 2, 3)
    inputs = [t.requires_grad_() for t in (projected, weight, step)]
    arguments = (*inputs, 1.0, y.requires_grad_(), z.requires_grad_(), None)
    torch.library.opcheck(torch.ops.undamped.oscillator_scan.default, arguments)
    arguments = (*arguments[:-1], torch.tensor([5, 2]))
    torch.library.opcheck(torch.ops.undamped.oscillator_scan.default, arguments)


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")
def test_functional_transforms_see_through_it():
    projected, weight, step, (y, z) = draw(7, 6, 2, 3)

    def run(y):
        return oscillator_scan(projected, weight, step, 1.0, (y, z))[0]

    forward = torch.func.jacfwd(run)(y)
    backward = torch.autograd.functional.jacobian(run, y)
    torch.testing.assert_close(forward, backward)


def test_tanh_is_accurate_in_float32_and_exact_in_float64():
    x = np.concatenate([np.linspace(-20, 20, 400_001), np.logspace(-30, 1, 20_000)])
    single = x.astype(np.float32)
    exact = np.tanh(single.astype(np.float64))
    got = tanh_array(single)
    kept = exact != 0
    assert got.dtype == np.float32
    assert np.abs(got[kept] / exact[kept] - 1).max() < 1e-6
    assert np.abs(got).max() <= 1
    assert got[single == 0].tolist() == [0.0] * int((single == 0).sum())
    with np.errstate(invalid="ignore"):  # NumPy looks at a flag that comparisons set
        assert np.isnan(tanh_array(np.float32("nan")))
    assert tanh_array(np.float32("inf")) == 1
    assert tanh_array(np.float32("-inf")) == -1
    import math

    assert all(tanh_array(v) == math.tanh(v) for v in x[::1000])


def test_tanh_in_float32_never_passes_one():
    low, high = (int(np.float32(v).view(np.uint32)) for v in (4.0, 8.0))
    every = np.arange(low, high, dtype=np.uint32).view(np.float32)  # all there are in between
    assert tanh_array(every).max() <= 1
    assert tanh_array(-every).min() >= -1


def test_slopes_of_tanh_and_sigmoid_in_float32_vanish_where_they_should():
    x = np.concatenate([EVERY_EXPONENT, np.linspace(-20, 20, 40_000).astype(np.float32)])
    value, exact = tanh_array(x), np.tanh(x.astype(np.float64))
    assert np.abs(value / exact - 1).max() < 3e-7
    assert np.abs((1 - value * value) - (1 - exact * exact)).max() < 4e-7
    assert (np.abs(value[np.abs(x) > 9.1]) == 1).all()
    value = sigmoid_array(x)
    np.testing.assert_allclose(reordered(x), [tanh_array(x), value], rtol=5e-6, atol=1e-37)
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    normal = exact > 1e-36
    assert value.dtype == np.float32
    assert np.abs(value[normal] / exact[normal] - 1).max() < 5e-6
    assert (value[x < -89] == 0).all() and (value[x > 17] == 1).all()
    with np.errstate(invalid="ignore"):
        assert np.isnan(sigmoid_array(np.float32("nan")))
    far = sigmoid_array(np.array([-np.inf, np.inf, 0], np.float32))
    assert far.tolist() == [0, 1, 0.5]
