"""The IndRNN scan against its equation in NumPy, for values and gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped.kernels import kernel_limits, reference_independent_scan
from undamped.kernels.indrnn.layer import independent_layer
from undamped.kernels.shared.allocate import contiguous_copy, empty


def independent_scan(projected, weight, state, nonlinearity="relu", lengths=None):
    """The scan alone: a layer whose input product changes nothing."""
    same = torch.eye(projected.shape[2], dtype=projected.dtype)
    return independent_layer(
        projected, same, torch.zeros_like(weight), weight, state, nonlinearity, lengths
    )


def oracle(projected, weight, hidden, squash, lengths=None):
    outputs = np.zeros_like(projected)
    hidden = hidden.copy()
    for n in range(projected.shape[0]):
        for b in range(projected.shape[1]):
            if lengths is None or n < lengths[b]:
                hidden[b] = squash(weight * hidden[b] + projected[n, b])
                outputs[n, b] = hidden[b]
    return outputs, hidden


SQUASH = {"relu": lambda a: np.maximum(a, 0), "tanh": np.tanh}


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    steps=st.integers(1, 30),
    batch=st.integers(1, 5),
    hidden=st.integers(1, 70),
    nonlinearity=st.sampled_from(["relu", "tanh"]),
    single=st.booleans(),
    uneven=st.booleans(),
)
def test_agrees_with_the_equation(steps, batch, hidden, nonlinearity, single, uneven):
    dtype = torch.float32 if single else torch.float64
    torch.manual_seed(hidden)
    projected = torch.randn(steps, batch, hidden, dtype=dtype)
    weight, state = torch.rand(hidden, dtype=dtype), torch.randn(batch, hidden, dtype=dtype)
    lengths = 1 + torch.arange(batch) * steps // (batch + 1) if uneven else None
    got = independent_scan(projected, weight, state, nonlinearity, lengths)
    arrays = [t.double().numpy() for t in (projected, weight, state)]
    expected = oracle(*arrays, SQUASH[nonlinearity], lengths)
    tolerance = 1e-4 if single else 1e-12
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.double().numpy(), b, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("nonlinearity", ["relu", "tanh"])
@pytest.mark.parametrize("lengths", [None, [6, 2]])
def test_gradients(nonlinearity, lengths):
    torch.manual_seed(0)
    inputs = [
        torch.randn(6, 2, 4, dtype=torch.float64),
        torch.randn(4, dtype=torch.float64),
        torch.randn(2, 4, dtype=torch.float64),
    ]
    inputs = [t.requires_grad_() for t in inputs]
    ends = None if lengths is None else torch.tensor(lengths)

    def run(*tensors):
        return independent_scan(*tensors, nonlinearity, ends)

    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.slow
def test_single_precision_gradients_agree_with_the_plain_loop():
    torch.manual_seed(0)
    projected, weight = torch.randn(50, 3, 40, requires_grad=True), torch.rand(40).requires_grad_()
    state = torch.randn(3, 40, requires_grad=True)

    def gradients(scan):
        outputs, last = scan(projected, weight, state, "tanh", torch.tensor([50, 3, 20]))
        return torch.autograd.grad((outputs**2).sum() + last.sum(), (projected, weight, state))

    for got, expected in zip(
        gradients(independent_scan), gradients(reference_independent_scan), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def layer_inputs(dtype=torch.float64, steps=7, batch=3, features=2, hidden=5):
    torch.manual_seed(1)
    shapes = [(steps, batch, features), (hidden, features), (hidden,), (hidden,), (batch, hidden)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("chunk", [2, 100])
@pytest.mark.parametrize("nonlinearity", ["relu", "tanh"])
@pytest.mark.parametrize("lengths", [None, [7, 2, 1]])
def test_a_layer_agrees_with_the_equation(chunk, nonlinearity, lengths):
    inputs = layer_inputs()
    ends = None if lengths is None else torch.tensor(lengths)
    x, matrix, bias, weight, state = (t.detach().numpy() for t in inputs)
    expected = oracle(x @ matrix.T + bias, weight, state, SQUASH[nonlinearity], lengths)
    with kernel_limits(chunk_steps=chunk):
        got = independent_layer(*inputs, nonlinearity, ends)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-12, atol=1e-12)
        check = torch.autograd.gradcheck
        assert check(lambda *t: independent_layer(*t, nonlinearity, ends), inputs)


def test_a_layer_does_not_look_past_the_end():
    inputs = layer_inputs()
    ends = torch.tensor([7, 2, 1])
    with torch.no_grad():
        inputs[0][2:, 1] = torch.nan
        inputs[0][1:, 2] = torch.nan
    with kernel_limits(chunk_steps=3):
        outputs, last = independent_layer(*inputs, "relu", ends)
        gradients = torch.autograd.grad(outputs.sum() + last.sum(), inputs)
    assert all(part.isfinite().all() for part in (outputs, last, *gradients))


@pytest.mark.slow
def test_the_operator_of_a_layer_is_registered_properly():
    inputs = layer_inputs(torch.float32)
    for lengths in (None, torch.tensor([7, 2, 1])):
        torch.library.opcheck(
            torch.ops.undamped.independent_layer.default, (*inputs, True, lengths)
        )


@pytest.mark.parametrize("steps", [0, 1])
def test_short_layers(steps):
    inputs = layer_inputs(steps=steps)
    outputs, last = independent_layer(*inputs)
    assert outputs.shape == (steps, 3, 5)
    result = torch.autograd.grad(outputs.sum() + last.sum(), inputs)
    assert all(g.shape == t.shape for g, t in zip(result, inputs, strict=True))


def test_memory_is_aligned_and_of_the_right_kind():
    for shape, dtype in (((3, 5), torch.float64), ((1200, 1001), torch.float32), ((0, 4), None)):
        like = torch.zeros(1, dtype=dtype)
        result = empty(shape, like)
        assert result.shape == shape and result.dtype == like.dtype and result.is_contiguous()
        assert result.data_ptr() % 64 == 0
    strided = torch.randn(3000, 1024)[:, ::2]
    copy = contiguous_copy(strided)
    assert torch.equal(copy, strided) and copy.is_contiguous()
