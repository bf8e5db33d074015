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
from undamped.lab.benchmarks.timing import train_step
from undamped.lab.benchmarks.unicornn import (
    MODES,
    StackShape,
    build_stack,
    memory_work,
    networks_of,
    time_candidates,
    unicornn_report,
)
from undamped.lab.report.table import Progress, Report


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
        timings = {
            shape: time_candidates(candidates_on(shape, card), rounds, progress, warmup=2)
            for shape in shapes
        }
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


def candidates_on(shape: StackShape, card: torch.device) -> dict[str, Callable[[], None]]:
    """Return a training step of each candidate that waits for its device."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs).to(card)
    networks = {name: network.to(card) for name, network in networks_of(shape).items()}
    candidates = {name: partial(_train, network, x) for name, network in networks.items()}
    network = build_stack(shape).to(card)

    def plain_loop() -> None:
        with plain_loops():
            _train(network, x)

    return {**candidates, "plain loop": plain_loop}


def _train(network: nn.Module, x: Tensor) -> None:
    train_step(network, x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _peak(name: str, steps: int, card: torch.device) -> int:
    """Return the peak memory of a training step with the last output, above the input."""
    work = memory_work(name, steps, str(card))
    torch.cuda.synchronize(card)
    torch.cuda.reset_peak_memory_stats(card)
    before = torch.cuda.memory_allocated(card)
    work()
    torch.cuda.synchronize(card)
    return torch.cuda.max_memory_allocated(card) - before
