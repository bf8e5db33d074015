"""What a block does before, in and behind its layer, one by one: as torch does it, values and
gradients."""

import pytest
import torch
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped.kernels.dispatch import plain_loops
from undamped.kernels.linear.block_parts import read_and_pass, row_norm, stored_product

EPSILON = 1e-5


def norm_and_passed(e):
    v, same = row_norm(e, EPSILON)
    return v * torch.linspace(-1, 2, v.shape[-1], dtype=v.dtype) + same.square()


def torch_norm(e):
    v = F.layer_norm(e, e.shape[-1:], eps=EPSILON)
    return v * torch.linspace(-1, 2, v.shape[-1], dtype=v.dtype) + e.square()


def torch_reading(s, u, weight, factor):
    return F.linear(s, weight) + factor * u


def product_and_passed(x, weight):
    made, same = stored_product(x, weight)
    return made.square().sum(-1) + (same * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)).sum(-1)


def torch_product(x, weight):
    made = F.linear(x, weight)
    return made.square().sum(-1) + (x * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)).sum(-1)


PARTS = {
    "norm": (norm_and_passed, torch_norm, [(4, 3, 7)]),
    "product": (product_and_passed, torch_product, [(4, 3, 5), (6, 5)]),
    "reading": (read_and_pass, torch_reading, [(4, 3, 5), (4, 3, 6), (6, 5), (6,)]),
}


def drawn(shapes, dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("part", PARTS)
def test_values_and_gradients_are_torchs(part):
    ours, theirs, shapes = PARTS[part]
    inputs = drawn(shapes)
    given, reference = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(given, reference, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(given)
    result = torch.autograd.grad(given, inputs, weights)
    expected = torch.autograd.grad(reference, inputs, weights)
    torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-11)
    assert torch.autograd.gradcheck(ours, inputs)


@pytest.mark.parametrize("part", PARTS)
def test_many_rows_in_single_precision(part):
    ours, theirs, shapes = PARTS[part]
    long = [(3000, *shape[1:]) if len(shape) == 3 else shape for shape in shapes]
    inputs = drawn(long, torch.float32)
    given, reference = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(given, reference, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(given)
    result = torch.autograd.grad(given, inputs, weights)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    expected = torch.autograd.grad(theirs(*exact), exact, weights.double())
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * float(other.std()))


@pytest.mark.parametrize("part", PARTS)
def test_turned_around_and_empty(part):
    ours, theirs, shapes = PARTS[part]
    turned = [(s[1], s[0], *s[2:]) if len(s) == 3 else s for s in shapes]
    inputs = [
        one.detach().transpose(0, 1).requires_grad_() if one.dim() == 3 else one
        for one in drawn(turned)
    ]
    torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=1e-12, atol=1e-12)
    none = drawn([(0, *shape[1:]) if len(shape) == 3 else shape for shape in shapes])
    result = ours(*none)
    assert result.shape[0] == 0
    result.sum().backward()
    assert all(not one.grad.any() for one in none)


@pytest.mark.parametrize("part", PARTS)
def test_second_derivatives_are_refused_or_plain(part):
    ours, _, shapes = PARTS[part]
    inputs = drawn(shapes)
    with pytest.raises(OptionError, match="plain_loops"):
        torch.autograd.grad(ours(*inputs).sum(), inputs, create_graph=True)
    with plain_loops():
        torch.autograd.grad(ours(*inputs).square().sum(), inputs, create_graph=True)


@pytest.mark.slow
def test_one_of_the_two_is_enough():
    (e,) = drawn([(4, 3, 7)])
    v, same = row_norm(e, EPSILON)
    (separate,) = torch.autograd.grad(same.square().sum(), e, retain_graph=True)
    torch.testing.assert_close(separate, 2 * e)
    weights = torch.randn_like(v)
    (result,) = torch.autograd.grad(v, e, weights)
    (expected,) = torch.autograd.grad(F.layer_norm(e, (7,), eps=EPSILON), e, weights)
    torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-11)


def test_a_row_of_equal_numbers():
    e = torch.full((2, 1, 5), 3.0, dtype=torch.float64, requires_grad=True)
    v, _ = row_norm(e, EPSILON)
    assert not v.any()
    v.sum().backward()
    assert e.grad.abs().max() < 1e-9
