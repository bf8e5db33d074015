"""Linear recurrences: the scan against torch's, a stack of LinOSS blocks against a bound and JAX.

The lower bound of a stack is what it cannot do without: its matrix products, forward and backward,
and its scans. Memory is measured in separate processes, with the mean of all outputs as readout.
In JAX the recurrence is an associative scan over a 2×2 matrix for every step and complex inputs;
blocks, loss and gradients are one compiled function, with the weights of our network.

    undamped bench linear
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.memory import peak_memory
from undamped._base.registry import models
from undamped._base.torch_internals import associative_scan
from undamped.kernels import linear_oscillator_scan, linear_scan
from undamped.lab.benchmarks.timing import Timing, benchmark, interleaved, milliseconds
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.nn.recurrent import Recurrent

SCAN, TORCH_SCAN = "linear_scan", "torch associative_scan"
STACK, BOUND = "linoss, 2 blocks", "its products and scans"
LOSS, JAX = "linoss, 2 blocks, and a loss", "the same in JAX"
HEADER = ("forward and backward", "ms", "as a multiple")
BLOCKS, WIDTH, OSCILLATORS, INPUTS = 2, 128, 64, 6
TIMES_TORCH, TIMES_BOUND, TIMES_JAX, TIMES_MEMORY = 20.0, 1.4, 3.0, 1.5
"""Targets: torch's scan at least so many times ours, the stack at most so many times its lower
bound, JAX at least so many times ours, memory of a long sequence at most so many times that of a
sixteenth of it."""


@benchmark("linear")
def run(
    *, rounds: int = 5, quick: bool = False, jax: bool = True, progress: Progress = silent
) -> Report:
    """Linear recurrences against torch's associative scan, a lower bound and JAX: speed and memory.

    Args:
        rounds: How often each candidate is timed.
        quick: Short sequences.
        jax: Whether to time the same stack in JAX.
        progress: Called with the name of a candidate after every run.

    Example:
        >>> result = run(rounds=1, quick=True, jax=False)
        >>> result.numbers["torch_over_ours"]
    """
    if jax:
        require_jax()
    scan, stack = ((200, 2, 8), (100, 2)) if quick else ((17_984, 8, 64), (17_984, 4))
    lengths = (64, 1024) if quick else (4096, 65_536)
    ours, theirs, difference = _scans(*scan)
    timings = interleaved({SCAN: ours, TORCH_SCAN: theirs}, rounds=rounds, progress=progress)
    network, x = _stack(), torch.randn(*stack, INPUTS)
    candidates: dict[str, Callable[[], Any]] = {
        STACK: _back(network, x),
        BOUND: _lower_bound(*stack),
    }
    loss_difference = None
    if jax:
        candidates[LOSS] = partial(_train, network, x)
        candidates[JAX] = jax_step(network, x)
        value = float(_train(network, x))
        loss_difference = abs(candidates[JAX]()[0] - value) / value
    timings |= interleaved(candidates, rounds=rounds, progress=progress)
    peaks = [peak_memory(_memory_work, length, stack[1]) for length in lengths]
    progress("memory")
    numbers = {
        "timings": timings,
        "torch_over_ours": timings[TORCH_SCAN].over(timings[SCAN]),
        "stack_over_bound": timings[STACK].over(timings[BOUND]),
        "jax_over_ours": timings[JAX].over(timings[LOSS]) if jax else None,
        "lengths": list(lengths),
        "peak_bytes": peaks,
        "memory_ratio": peaks[1] / max(1, peaks[0]),
        "scan_difference": difference,
        "loss_difference": loss_difference,
    }
    title = (
        f"A scan of {scan[0]:,} × {scan[1]} × {scan[2]} complex numbers, and {BLOCKS} LinOSS "
        f"blocks ({WIDTH} features, {OSCILLATORS} oscillators) over {stack[0]:,} × {stack[1]}; "
        f"{torch.get_num_threads()} threads."
    )
    bars = {"": milliseconds(timings)}
    return Report(
        [],
        [Table(HEADER, _rows(timings), title, _notes(numbers, stack))],
        {"steps": lambda: bar_chart(bars, "ms per training step", title, log=True)},
        numbers,
        {"scan": list(scan), "stack": list(stack)},
    )


def _rows(timings: Mapping[str, Timing]) -> list[tuple[str, str, str]]:
    """Return milliseconds, and multiples of ours in the same comparison."""
    baselines = {SCAN: SCAN, TORCH_SCAN: SCAN, JAX: LOSS}
    return [
        (
            name,
            f"{1000 * timing.median:.0f}",
            f"{timing.over(timings[baselines.get(name, STACK)]):.2f}",
        )
        for name, timing in timings.items()
    ]


def _notes(numbers: Mapping[str, Any], stack: Sequence[int]) -> list[str]:
    peaks = " and ".join(
        f"{peak / 1e6:.0f} MB at {length:,} steps"
        for length, peak in zip(numbers["lengths"], numbers["peak_bytes"], strict=True)
    )
    notes = [
        f"torch's scan takes {numbers['torch_over_ours']:.0f} times ours (target: at least "
        f"{TIMES_TORCH:g}); the stack takes {numbers['stack_over_bound']:.2f} times its lower "
        f"bound (target: at most {TIMES_BOUND:g}).",
        f"Peak memory of a training step, batch {stack[1]}, mean readout: {peaks}, "
        f"{numbers['memory_ratio']:.2f} times (target: at most {TIMES_MEMORY:g}).",
        f"Our scan and torch's differ by at most {numbers['scan_difference']:.1e}.",
    ]
    if numbers["jax_over_ours"] is not None:
        notes.insert(
            1,
            f"JAX takes {numbers['jax_over_ours']:.1f} times ours (target: at least "
            f"{TIMES_JAX:g}); the relative difference of the losses is "
            f"{numbers['loss_difference']:.1e}.",
        )
    return notes


def _scans(
    steps: int, batch: int, units: int
) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """Return our scan and torch's, forward and backward, and the difference of their outputs."""
    torch.manual_seed(0)
    kind = torch.complex64
    inputs = torch.randn(steps, batch, units, dtype=kind, requires_grad=True)
    coefficients = torch.polar(
        0.9 + 0.1 * torch.rand(units), 3 * torch.rand(units)
    ).requires_grad_()
    weights = torch.randn(steps, batch, units, dtype=kind)
    start = torch.zeros(batch, units, dtype=kind)

    def combine(i: tuple[Tensor, Tensor], j: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return i[0] * j[0], j[0] * i[1] + j[1]

    def ours() -> Tensor:
        return linear_scan(inputs, coefficients, start)[0]

    def theirs() -> Tensor:
        # An associative scan needs the coefficients of every step.
        expanded = coefficients.expand_as(inputs).clone()
        return associative_scan(combine, (expanded, inputs))[1]

    with torch.no_grad():
        difference = float((ours() - theirs()).abs().max())

    def passes(scan: Callable[[], Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(scan(), (inputs, coefficients), weights)

    return passes(ours), passes(theirs), difference


def _stack(blocks: int = BLOCKS) -> Recurrent:
    torch.manual_seed(0)
    return models.build(
        "linoss",
        input_size=INPUTS,
        hidden_size=WIDTH,
        num_layers=blocks,
        oscillators=OSCILLATORS,
        block="layer-norm",
    )


def _back(network: Recurrent, x: Tensor) -> Callable[[], None]:
    """Return both passes from a gradient of the outputs, like the lower bound."""
    weights = torch.randn(*x.shape[:2], WIDTH)

    def run() -> None:
        network.zero_grad()
        network(x)[0].backward(weights)

    return run


def _train(network: Recurrent, x: Tensor) -> Tensor:
    """Run a training step without its update; return the loss."""
    network.zero_grad()
    loss = network(x)[0].square().mean()
    loss.backward()
    return loss.detach()


def _lower_bound(steps: int, batch: int) -> Callable[[], None]:
    """Return all products and all scans of the stack, with nothing between them."""
    rows, states = steps * batch, 2 * OSCILLATORS
    shapes = [(INPUTS, WIDTH), *[(WIDTH, states), (states, WIDTH), (WIDTH, 2 * WIDTH)] * BLOCKS]
    data = {width: torch.randn(rows, width) for width in {w for shape in shapes for w in shape}}
    matrices = [torch.randn(shape) for shape in shapes]
    drive = torch.randn(steps, batch, states, requires_grad=True)
    decay, stiffness, step = (torch.rand(states).requires_grad_() for _ in range(3))
    state = (torch.zeros(batch, states), torch.zeros(batch, states))
    weights = torch.randn(steps, batch, states)

    def run() -> None:
        for matrix in matrices:
            inputs, outputs = matrix.shape
            torch.mm(data[inputs], matrix)
            torch.mm(data[inputs].t(), data[outputs])
            if inputs != INPUTS:  # the gradient of the input is not needed
                torch.mm(data[outputs], matrix.t())
        for _ in range(BLOCKS):
            output, _ = linear_oscillator_scan(drive, decay, stiffness, step, step, state)
            torch.autograd.grad(output, (drive, decay, stiffness, step), weights)

    return run


def _memory_work(steps: int, batch: int) -> Callable[[], None]:
    """Prepare a pass in a new process; libraries, kernels and input are loaded before it."""
    network = _stack()

    def train(x: Tensor) -> None:
        network.zero_grad()
        network.mean(x)[0].square().mean().backward()

    train(torch.randn(4, batch, INPUTS))
    return partial(train, torch.randn(steps, batch, INPUTS))


def require_jax() -> None:
    """Raise an error if JAX is not installed."""
    try:
        import jax  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError(
            "bench linear needs the package jax. Install it with pip install jax, or leave this "
            "part out with jax=no."
        ) from None


def jax_step(network: Recurrent, x: Tensor) -> Callable[[], tuple[float, Any]]:
    """Return a training step without its update: the mean square of all outputs, and gradients.

    Args:
        network: LinOSS (im) with layer-norm blocks.
        x: (time, batch, input).
    """
    import jax
    import jax.numpy as jnp

    weights = jax.tree.map(lambda t: jnp.asarray(t.detach().numpy()), _weights(network))
    sequences = jnp.asarray(x.transpose(0, 1).contiguous().numpy())  # (batch, time, input)

    def combine(i: Any, j: Any) -> Any:
        (a, b, c, d), (f, g) = i
        (p, q, r, s), (u, v) = j
        product = (p * a + q * c, p * b + q * d, r * a + s * c, r * b + s * d)
        return product, (p * f + q * g + u, r * f + s * g + v)

    def layer(w: dict[str, Any], v: Any) -> Any:
        P = w["frequency"].shape[0]
        A, step = jax.nn.relu(w["frequency"]), jax.nn.sigmoid(w["step_logit"])
        S = 1 / (1 + step**2 * A)
        B = w["input_weight"][:P] + 1j * w["input_weight"][P:]
        C = w["output_weight"][:, :P] - 1j * w["output_weight"][:, P:]
        force = v @ B.T  # (time, P), complex
        ones = jnp.ones((v.shape[0], P))
        matrix = (S * ones, -step * A * S * ones, step * S * ones, (1 - step**2 * A * S) * ones)
        inputs = (step * S * force, step**2 * S * force)
        _, (_, position) = jax.lax.associative_scan(combine, (matrix, inputs))
        return (position @ C.T).real + w["pass_weight"] * v

    def block(w: dict[str, Any], e: Any) -> Any:
        mean, variance = e.mean(-1, keepdims=True), e.var(-1, keepdims=True)
        r = layer(w, (e - mean) / jnp.sqrt(variance + 1e-5))
        both = jax.nn.gelu(r) @ w["gate_weight"].T + w["gate_bias"]
        value, gate = jnp.split(both, 2, -1)
        return e + value * jax.nn.sigmoid(gate)

    def answer(w: dict[str, Any], sequence: Any) -> Any:
        e = sequence @ w["encoder_weight"].T + w["encoder_bias"]
        for number in range(network.num_layers):
            e = block(w[f"block{number}"], e)
        return e

    def loss(w: dict[str, Any]) -> Any:
        return (jax.vmap(answer, (None, 0))(w, sequences) ** 2).mean()

    compiled = jax.jit(jax.value_and_grad(loss))

    def step() -> tuple[float, Any]:
        value, gradients = jax.block_until_ready(compiled(weights))
        return float(value), gradients

    return step


def _weights(network: Recurrent) -> dict[str, Any]:
    weights: dict[str, Any] = {}
    for number, block in enumerate(network.cells):
        parameters = dict(block.cell.named_parameters())  # type: ignore[union-attr] (a module)
        parameters |= {f"gate_{key}": value for key, value in block.gate.named_parameters()}  # type: ignore[union-attr]
        weights[f"block{number}"] = parameters
    encoder = network.cells[0].encoder
    assert isinstance(encoder, torch.nn.Linear)
    return weights | {f"encoder_{key}": value for key, value in encoder.named_parameters()}
