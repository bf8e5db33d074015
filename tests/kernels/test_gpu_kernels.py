"""Kernels for GPUs without a GPU: what they compute, what they compile to, when they are picked."""

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

import undamped
from undamped.kernels import dispatch

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: pip install 'undamped[gpu]'"
)
PROGRAM = """
import json, sys, torch, undamped
from undamped.lab.benchmarks.gpu_agreement import CASES, error_of
from undamped.kernels.dispatch import interpreted_kernels, plain_loops

found = {f"{name}, {steps} steps": error_of(name, steps, ended=True)
         for name in CASES for steps in (1, 7)}
for name in ("independent_layer, tanh", "linear_scan, complex, one a step", "light_scan"):
    found[f"{name}, wide"] = error_of(name, 2, batch=1, units=67)
found["129 steps"] = error_of("oscillator_scan", 129, batch=1)
found["a thousand steps"] = error_of("linear_scan, numbers", 1000, batch=1, units=3)
for name in ("linoss", "lru", "mingru", "residual-unicornn"):
    torch.manual_seed(0)
    net, x = undamped.build(name, input_size=3, hidden_size=4), torch.randn(3, 2, 3)
    with torch.no_grad(), interpreted_kernels():
        ours = net(x)[0]
    with torch.no_grad(), plain_loops():
        theirs = net(x)[0]
    found[name] = float((ours - theirs).abs().max() / theirs.abs().max())
print(json.dumps(found))
"""


@pytest.mark.process
@needs_triton
def test_the_interpreter_finds_what_the_plain_loops_find():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) > 30
    assert {name: error for name, error in errors.items() if not error < 1e-5} == {}


@pytest.mark.process
@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_a_kernel_compiles_for_a_card_that_is_not_here(target, tmp_path, monkeypatch):
    from undamped.lab.benchmarks import gpu_kernels as gpu_targets

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (result,) = [each for each in gpu_targets.variants() if each[0] == "oscillator_backward"]
    name, kernel, choice = result
    answer = gpu_targets.compiled_for(target, kernel, choice)
    read = gpu_targets.measured(name, target, answer)
    assert 16 <= read.registers <= 255
    assert read.spilled == 0
    assert read.size > 1000
    if target.startswith("sm_"):  # loads run ahead of the arithmetic, by way of shared memory
        assert read.shared > 0
        assert "cp.async" in answer.asm["ptx"]


@needs_triton
def test_every_variant_is_told_everything_it_is_compiled_for():
    from undamped.lab.benchmarks.gpu_kernels import variants

    names = []
    for name, kernel, choice in variants():
        flags = {argument for argument in kernel.arg_names if argument.isupper()}
        assert set(choice) | {"LENGTHS"} == flags, name
        names.append(name)
    assert len(set(names)) == len(names) == 40


def on_a_card(kind=torch.float32):
    """Return what `implementation` looks at of a tensor on a GPU."""
    device = torch.device("cuda", 0)
    return SimpleNamespace(device=device, dtype=kind, is_meta=False, is_cuda=True)


def test_triton_is_picked_for_tensors_on_a_gpu(monkeypatch):
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)
    assert dispatch.implementation(on_a_card(), on_a_card(), gpu=True) == "triton"
    assert dispatch.on_gpu(on_a_card())
    assert dispatch.implementation(on_a_card()) == "reference"  # whoever has kernels says so
    assert dispatch.implementation(on_a_card(torch.float16), gpu=True) == "reference"
    assert dispatch.implementation(on_a_card(), torch.zeros(1), gpu=True) == "reference"
    with undamped.plain_loops():
        assert dispatch.implementation(on_a_card(), gpu=True) == "reference"
    assert dispatch.implementation(torch.zeros(1), gpu=True) == "numba"


def test_without_triton_a_gpu_says_once_that_it_is_slow(monkeypatch):
    monkeypatch.setattr(dispatch, "has_triton", lambda: False)
    dispatch.warn_about_slow_loop.cache_clear()
    with pytest.warns(dispatch.SlowLoopWarning, match=r"pip install 'undamped\[gpu\]'"):
        assert dispatch.implementation(on_a_card(), gpu=True) == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dispatch.implementation(on_a_card(), gpu=True) == "reference"
        assert dispatch.implementation(on_a_card()) == "reference"
    dispatch.warn_about_slow_loop.cache_clear()


@pytest.mark.parametrize("way", ["", "_backward"])
@pytest.mark.parametrize(
    "name",
    ["oscillator_scan", "linear_scan", "linear_oscillator_scan", "independent_layer", "light_scan"],
)
def test_operators_have_a_kernel_for_gpus(name, way):
    import_module("undamped.kernels.sru.scan")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has(f"undamped::{name}{way}", "CUDA")


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed")
def test_the_benchmark_says_what_it_needs():
    from undamped._base.errors import MissingPackageError
    from undamped.lab.benchmarks.gpu_kernels import run

    with pytest.raises(MissingPackageError, match=r"undamped\[gpu\]"):
        run()


def test_the_benchmark_prints_its_checks(monkeypatch):
    from undamped.lab.benchmarks import gpu_kernels
    from undamped.lab.benchmarks.gpu_kernels import Compiled

    compiled = [Compiled("forward", target, 40, 0, 768, 9000) for target in ("sm_80", "gfx942")]
    errors = {"forward": {1: 1e-7, 7: 2e-5}}
    result = gpu_kernels.gpu_report("3.9.0", "fp32", errors, compiled)
    assert not result.numbers["agrees"]
    assert "NOT within 1e-05" in result.markdown()
    assert "| forward | 40 / 0 / 768 / 9000 | 40 / 0 / 768 / 9000 |" in result.markdown()
    assert result.to_dict()["spilled_bytes"] == 0
    monkeypatch.setattr(gpu_kernels, "has_triton", lambda: True)
    for words, bad in (("steps", {"steps": "7,x"}), ("targets", {"targets": "a100"})):
        with pytest.raises(undamped._base.errors.OptionError, match=words):
            gpu_kernels.run(**bad)
