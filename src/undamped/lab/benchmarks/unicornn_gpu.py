"""The UnICORNN benchmark on a GPU: Triton's kernels beside cuDNN's LSTM and the plain loop.

It has not been run on a GPU; no numbers of it are quoted. A candidate is timed until the device has
finished. The first call of each, which compiles, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.kernels.dispatch import plain_loops, triton_is_there
from undamped.lab.benchmarks.timing import Timing, interleaved
from undamped.lab.benchmarks.unicornn import (
    MEMORY_BATCH,
    MEMORY_INPUTS,
    MEMORY_LAYERS,
    MEMORY_UNITS,
    MODES,
    StackShape,
    build_stack,
    unicornn_report,
)
from undamped.lab.report.table import Progress, Report

SLOW = ("plain loop",)


def run_on_gpu(
    device: str,
    shapes: Sequence[StackShape],
    lengths: Sequence[int],
    rounds: int,
    progress: Progress,
) -> Report:
    """Time all shapes and measure memory against length.

    Args:
        device: cuda, or cuda:1 and so on.
        shapes: The rows of the table.
        lengths: Steps for which memory is measured.
        rounds: How often each candidate is timed.
        progress: Called with a name after every measurement.
    """
    card = usable_gpu(device)
    with torch.cuda.device(card):
        timings = {shape: _time(shape, card, rounds, progress) for shape in shapes}
        memory: dict[str, dict[int, int]] = {}
        for name in (*MODES, "nn.LSTM"):
            for steps in lengths:
                memory.setdefault(name, {})[steps] = _peak(name, steps, card)
                progress(f"memory {name}")
        name = torch.cuda.get_device_name(card)
    return unicornn_report(timings, memory, {}, name)


def usable_gpu(device: str) -> torch.device:
    """Return an available GPU with Triton, or raise an error that names what is missing."""
    try:
        card = torch.device(device)
    except RuntimeError:
        card = None
    if card is None or card.type != "cuda":
        raise OptionError(
            f"device must be cpu, cuda or cuda:N, got '{device}'. AMD's GPUs are cuda too."
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (card.index or 0) >= count:
        raise OptionError(
            f"No such GPU: {device} (torch finds {count}). Leave --device out to measure the CPU."
        )
    if not triton_is_there():
        raise OptionError("Triton is not installed. Install it with pip install 'undamped[gpu]'.")
    return card


def _time(
    shape: StackShape, card: torch.device, rounds: int, progress: Progress
) -> dict[str, Timing]:
    candidates = candidates_on(shape, card)
    fast = {name: work for name, work in candidates.items() if name not in SLOW}
    slow = {name: work for name, work in candidates.items() if name in SLOW}
    timings = interleaved(fast, rounds=rounds, warmup=2, progress=progress)
    return timings | interleaved(slow, rounds=min(rounds, 2), warmup=0, progress=progress)


def candidates_on(shape: StackShape, card: torch.device) -> dict[str, Callable[[], None]]:
    """Return a training step of each candidate that waits for its device."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs).to(card)
    sizes = (shape.inputs, shape.units)
    networks: dict[str, nn.Module] = {mode: build_stack(shape, mode) for mode in MODES}
    networks["nn.LSTM, 1 layer"] = nn.LSTM(*sizes, 1)
    networks["nn.LSTM"] = nn.LSTM(*sizes, shape.layers)
    networks["nn.GRU"] = nn.GRU(*sizes, shape.layers)
    candidates = {name: partial(_train, network.to(card), x) for name, network in networks.items()}
    network = build_stack(shape).to(card)

    def plain_loop() -> None:
        with plain_loops():
            _train(network, x)

    return {**candidates, "plain loop": plain_loop}


def _train(network: nn.Module, x: Tensor) -> None:
    network(x)[0].sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _peak(name: str, steps: int, card: torch.device) -> int:
    """Return the peak memory of a training step with the last output, above the input."""
    shape = StackShape(steps, MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS)
    x = torch.randn(steps, shape.batch, shape.inputs, device=card)
    if name == "nn.LSTM":
        lstm = nn.LSTM(shape.inputs, shape.units, shape.layers).to(card)
        work = partial(lambda net, x: net(x)[0][-1].sum().backward(), lstm)
    else:
        network = build_stack(shape, name).to(card)
        work = partial(lambda net, x: net.last(x)[0].sum().backward(), network)
    work(x[:64])
    torch.cuda.synchronize(card)
    torch.cuda.reset_peak_memory_stats(card)
    before = torch.cuda.memory_allocated(card)
    work(x)
    torch.cuda.synchronize(card)
    return torch.cuda.max_memory_allocated(card) - before
