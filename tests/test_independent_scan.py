"""The IndRNN scan against its equation in NumPy, for values and gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped.kernels import independent_scan, reference_independent_scan


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
    want = oracle(*arrays, SQUASH[nonlinearity], lengths)
    tolerance = 1e-4 if single else 1e-12
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.double().numpy(), b, rtol=tolerance, atol=tolerance)


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


def test_single_precision_gradients_agree_with_the_plain_loop():
    torch.manual_seed(0)
    projected, weight = torch.randn(50, 3, 40, requires_grad=True), torch.rand(40).requires_grad_()
    state = torch.randn(3, 40, requires_grad=True)

    def gradients(scan):
        outputs, last = scan(projected, weight, state, "tanh", torch.tensor([50, 3, 20]))
        return torch.autograd.grad((outputs**2).sum() + last.sum(), (projected, weight, state))

    for got, want in zip(
        gradients(independent_scan), gradients(reference_independent_scan), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_operator_is_registered_properly():
    arguments = (
        torch.randn(5, 2, 3, requires_grad=True),
        torch.rand(3).requires_grad_(),
        torch.randn(2, 3, requires_grad=True),
        True,
        None,
    )
    torch.library.opcheck(torch.ops.undamped.independent_scan.default, arguments)
