"""The benchmark of linear recurrences: it runs, and what it compares is the same thing."""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.lab.benchmarks.linear import (
    BOUND,
    SCAN,
    STACK,
    TORCH_SCAN,
    _stack,
    _train,
    jax_step,
    run,
)


@pytest.mark.process
def test_it_times_all_candidates_and_they_agree():
    result = run(rounds=1, quick=True, jax=False)
    numbers = result.numbers
    assert list(numbers["timings"]) == [SCAN, TORCH_SCAN, STACK, BOUND]
    assert numbers["scan_difference"] < 1e-3 and numbers["loss_difference"] is None
    assert numbers["stack_over_bound"] > 0 and numbers["peak_bytes"][0] >= 0
    assert json.loads(json.dumps(result.to_dict()))["jax_over_ours"] is None
    assert "times its lower bound" in result.markdown()
    assert result.figures()["steps"].axes


def compare_with_jax():
    network, x = _stack(blocks=1), torch.randn(12, 2, 6)
    ours = float(_train(network, x))
    theirs, gradients = jax_step(network, x)()
    assert abs(theirs - ours) < 1e-5 * ours
    for key in ("frequency", "step_logit", "input_weight", "output_weight", "pass_weight"):
        mine = network.cell(0).cell.get_parameter(key).grad
        other = torch.tensor(gradients["block0"][key].tolist())
        torch.testing.assert_close(mine, other, rtol=2e-3, atol=1e-3 * float(mine.abs().max()))


@pytest.mark.process
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_does_what_ours_does():
    """The same weights, somebody else's scan: equal loss and equal gradients.

    In a process of its own: one that has used JAX warns whenever it is forked, and tests that do
    so may come later.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(compare_with_jax).result()


def test_without_jax_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(OptionError, match=r"needs the package jax.* jax=no"):
        run(rounds=1, quick=True)
