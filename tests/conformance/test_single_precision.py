"""Compiled kernels in float32, measured by float64 and by what plain PyTorch reaches in float32."""

import contextlib
import copy

import pytest
import torch
from member_groups import CELLS

import undamped
from undamped._base.registry import models

SCALES = torch.tensor([0.3, 3.0, 30.0])
"""Of the inputs of three samples: from small to far beyond where gates and tanh saturate."""
TIMES_PLAIN, FLOOR = 4.0, 3e-6
"""How much further from float64 than plain float32 a kernel may be, and what is always allowed."""


def blocks(name):
    takes_blocks = models[name].cell_class.independent_units
    return ("none", "layer-norm", "batch-norm") if takes_blocks else ("none",)


CASES = [(name, block) for name in CELLS for block in blocks(name)]


def values_and_gradients(net, x, dtype, *, plain):
    """Return outputs and input gradients of each sample, and the gradients of the parameters."""
    net, x = copy.deepcopy(net).to(dtype), x.to(dtype, copy=True).requires_grad_()
    with undamped.plain_loops() if plain else contextlib.nullcontext():
        output, _ = net(x)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
        (output * weights.to(dtype)).sum().backward()
    results = {
        name: parameter.grad
        for name, parameter in net.named_parameters()
        if parameter.grad is not None
    }
    for sample, (row, gradient) in enumerate(zip(output.unbind(1), x.grad.unbind(1), strict=True)):
        results |= {f"output {sample}": row.detach(), f"input gradient {sample}": gradient}
    return results


def errors(results, reference):
    """Return how far each tensor is from its reference, relative to its norm."""
    return {
        name: float((results[name].double() - exact).norm() / exact.norm().clamp(min=1e-30))
        for name, exact in reference.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "block"), CASES)
@pytest.mark.filterwarnings("ignore:W of full-capacity-urnn is not unitary")
def test_kernels_in_float32_are_as_near_to_float64_as_plain_loops(name, block):
    torch.manual_seed(1)
    options = {} if block == "none" else {"block": block}
    net = undamped.build(name, input_size=3, hidden_size=32, **options)
    # With gains of one these are chaotic: any rounding error grows until values share no digit.
    if name.startswith("layer-norm"):
        net.cell(0).hidden_gain.data.mul_(0.3)
    steps = 250 if None in net.cell(0).state_sizes else 1000
    x = torch.randn(steps, 3, 3) * SCALES[:, None]
    reference = values_and_gradients(net, x, torch.float64, plain=True)
    compiled, plain = (
        errors(values_and_gradients(net, x, torch.float32, plain=plain), reference)
        for plain in (False, True)
    )
    excess = {
        k: (e, plain[k]) for k, e in compiled.items() if not e < TIMES_PLAIN * plain[k] + FLOOR
    }
    assert not excess


def far_apart(net, x):
    """Return the largest relative difference of compiled gradients in float32 and in float64."""
    single, double = (
        values_and_gradients(net, x, dtype, plain=False) for dtype in (torch.float32, torch.float64)
    )
    return max(errors(single, double).values())


@pytest.mark.slow
def test_gradients_of_blocks_with_growing_oscillators_in_float32():
    """Squared frequencies below zero, which training may reach: the layer's answers are huge."""
    torch.manual_seed(0)
    net = undamped.nn.LinOSS(2, 64, num_layers=2, block="layer-norm")
    with torch.no_grad():
        for layer in range(2):
            net.cell(layer).cell.frequency[:8] = -0.01
    assert far_apart(net, torch.randn(1000, 1, 2)) < 2e-3


def test_gradients_of_a_block_over_twenty_thousand_steps_in_float32():
    torch.manual_seed(0)
    net = undamped.nn.LinOSS(2, 8, block="layer-norm", method="imex")
    assert far_apart(net, torch.randn(20_000, 1, 2)) < 5e-3
