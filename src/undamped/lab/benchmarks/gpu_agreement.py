"""The GPU kernels compared with the plain loops, in Triton's interpreter, which needs no GPU.

`python -m undamped.lab.benchmarks.gpu_agreement STEPS KERNEL...` in a process with
TRITON_INTERPRET=1 prints a line of JSON for each case: the largest error of all results and all
gradients, relative to the largest number of each tensor, in float32 against the plain loop in
float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from undamped._base.registry import models
from undamped.kernels import independent_layer, linear_oscillator_scan, linear_scan, oscillator_scan
from undamped.kernels.dispatch import interpreted_kernels, plain_loops
from undamped.kernels.indrnn.layer import Nonlinearity
from undamped.kernels.shared.limits import kernel_limits

Outputs = tuple[Tensor, ...]
Case = tuple[Callable[..., Outputs], list[Tensor]]
UNITS = 5
BATCH = 2


def _oscillators(steps: int, batch: int, units: int, lengths: Tensor | None) -> Case:
    def run(projected: Tensor, w: Tensor, s: Tensor, y: Tensor, z: Tensor) -> Outputs:
        positions, state = oscillator_scan(projected, w, s, 1.3, (y, z), lengths)
        return positions, *state

    parameters = [torch.rand(units), 0.2 * torch.rand(units)]
    state = [torch.randn(batch, units) for _ in range(2)]
    return run, [torch.randn(steps, batch, units), *parameters, *state]


def _network(name: str, steps: int, batch: int, units: int, lengths: Tensor | None) -> Case:
    network = models.build(name, input_size=3, hidden_size=units, num_layers=2)
    names = [name for name, _ in network.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Outputs:
        values = dict(zip(names, parameters, strict=True))
        buffers = {name: buffer.to(x.dtype) for name, buffer in network.named_buffers()}
        arguments = (x, None, lengths)
        output, state = torch.func.functional_call(network, {**values, **buffers}, arguments)
        return output, *state

    return run, [torch.randn(steps, batch, 3), *(p.detach() for p in network.parameters())]


def _independent(nonlinearity: Nonlinearity) -> Callable[..., Case]:
    def case(steps: int, batch: int, units: int, lengths: Tensor | None) -> Case:
        def run(x: Tensor, v: Tensor, b: Tensor, w: Tensor, state: Tensor) -> Outputs:
            return independent_layer(x, v, b, w, state, nonlinearity, lengths)

        weights = [torch.randn(units, 3), torch.randn(units), torch.rand(units)]
        return run, [torch.randn(steps, batch, 3), *weights, torch.randn(batch, units)]

    return case


def _linear(tail: tuple[int, ...], per_step: bool) -> Callable[..., Case]:
    def case(steps: int, batch: int, units: int, lengths: Tensor | None) -> Case:
        def run(u: Tensor, a: Tensor, state: Tensor) -> Outputs:
            return linear_scan(u, a, state, lengths)

        pair = tail[:1]
        coefficients = torch.rand(*((steps, batch) if per_step else ()), units, *tail)
        sequence = torch.randn(steps, batch, units, *pair)
        return run, [sequence, 0.5 * coefficients, torch.randn(batch, units, *pair)]

    return case


def _oscillator(damped: bool) -> Callable[..., Case]:
    def case(steps: int, batch: int, units: int, lengths: Tensor | None) -> Case:
        def run(u: Tensor, k: Tensor, f: Tensor, s: Tensor, x: Tensor, z: Tensor, *a: Tensor):
            outputs, state = linear_oscillator_scan(
                u, a[0] if a else None, k, f, s, (x, z), lengths
            )
            return outputs, *state

        parameters = [torch.rand(units), torch.rand(units), 0.3 * torch.rand(units)]
        state = [torch.randn(batch, units) for _ in range(2)]
        decay = [0.9 + 0.1 * torch.rand(units)] if damped else []
        return run, [torch.randn(steps, batch, units), *parameters, *state, *decay]

    return case


CASES: dict[str, Callable[..., Case]] = {
    "oscillator_scan": _oscillators,
    "oscillator_stack": partial(_network, "unicornn"),
    "independent_layer, relu": _independent("relu"),
    "independent_layer, tanh": _independent("tanh"),
    "light_scan": partial(_network, "sru"),
    "linear_scan, numbers": _linear((), False),
    "linear_scan, a number a step": _linear((), True),
    "linear_scan, complex": _linear((2,), False),
    "linear_scan, complex, one a step": _linear((2,), True),
    "linear_scan, 2×2": _linear((2, 2), False),
    "linear_scan, 2×2, one a step": _linear((2, 2), True),
    "linear_oscillator_scan": _oscillator(False),
    "linear_oscillator_scan, damped": _oscillator(True),
}


def error_of(
    name: str, steps: int, *, batch: int = BATCH, units: int = UNITS, ended: bool = False
) -> float:
    """Return the largest relative error of results and gradients of a case.

    Args:
        name: One of `CASES`.
        steps: Length of the sequences.
        batch: Number of sequences.
        units: Number of units.
        ended: Whether all but the first end halfway.
    """
    torch.manual_seed(0)
    lengths = torch.tensor([steps, *[steps // 2 + 1] * (batch - 1)]) if ended else None
    run, tensors = CASES[name](steps, batch, units, lengths)
    # Few stored states, so that the stack is reversed in time too.
    with interpreted_kernels(), kernel_limits(chunk_steps=48, anchors=2):
        ours = _results(run, [tensor.clone().requires_grad_() for tensor in tensors])
    with plain_loops():
        theirs = _results(run, [tensor.double().requires_grad_() for tensor in tensors])
    return max(map(_relative, ours, theirs))


def _results(run: Callable[..., Outputs], tensors: Sequence[Tensor]) -> list[Tensor]:
    results = run(*tensors)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results]
    gradients = torch.autograd.grad(results, tensors, weights)
    return [tensor.detach() for tensor in (*results, *gradients)]


def _relative(ours: Tensor, theirs: Tensor) -> float:
    scale = theirs.abs().max().clamp_min(1e-30)
    return float((ours.double() - theirs).abs().max() / scale)


def main(arguments: Sequence[str]) -> None:
    """Print the errors of the named cases, or of all, for every number of steps."""
    lengths, names = [int(word) for word in arguments[0].split(",")], list(arguments[1:])
    for name in names or CASES:
        for steps in lengths:
            case = {"kernel": name, "steps": steps, "error": error_of(name, steps, ended=True)}
            sys.stdout.write(json.dumps(case) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
