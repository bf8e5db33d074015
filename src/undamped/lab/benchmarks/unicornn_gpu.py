"""The UnICORNN benchmark on a GPU: Triton's kernels beside cuDNN's LSTM and the plain loop.

Ready for whoever has a GPU; no figures of it are quoted, since there was none at hand. A candidate
is timed until the device has finished. The first call of each, which compiles, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped.kernels.dispatch import plain_loops, triton_is_there
from undamped.lab.benchmarks.timing import Timing, interleaved
from undamped.lab.benchmarks.unicornn import (
    MEMORY_BATCH,
    MEMORY_INPUTS,
    MEMORY_LAYERS,
    MEMORY_UNITS,
    MODES,
    Shape,
    UnicornnBenchmark,
    _network,
)

SLOW = ("plain loop",)


def run_on_gpu(
    device: str,
    shapes: Sequence[Shape],
    lengths: Sequence[int],
    rounds: int,
    tick: Callable[[str], None] | None,
) -> UnicornnBenchmark:
    """Time all shapes and measure memory against length.

    Args:
        device: cuda, or cuda:1 and so on.
        shapes: The lines of the table.
        lengths: Steps for which memory is measured.
        rounds: How often each candidate is timed.
        tick: Called with a name after every measurement.
    """
    card = usable_gpu(device)
    with torch.cuda.device(card):
        timings = {shape: _time(shape, card, rounds, tick) for shape in shapes}
        memory: dict[str, dict[int, int]] = {}
        for name in (*MODES, "nn.LSTM"):
            for steps in lengths:
                memory.setdefault(name, {})[steps] = _peak(name, steps, card)
                if tick is not None:
                    tick(f"memory {name}")
        name = torch.cuda.get_device_name(card)
    return UnicornnBenchmark(torch.get_num_threads(), timings, memory, {}, name)


def usable_gpu(device: str) -> torch.device:
    """Return a GPU that is there and has the kernels, or say what is missing."""
    try:
        card = torch.device(device)
    except RuntimeError:
        card = None
    if card is None or card.type != "cuda":
        raise _refused("cpu, cuda or cuda and a number", f"'{device}'", "AMD's cards are cuda too.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (card.index or 0) >= count:
        have = "none that torch can use" if not count else f"{count} of them"
        raise _refused(f"a GPU for '{device}'", have, "Leave --device out to measure the CPU.")
    if not triton_is_there():
        raise _refused("Triton", "none", "Install it with: pip install 'undamped[gpu]'")
    return card


def _refused(expected: str, got: str, remedy: str) -> OptionError:
    return OptionError(explain("device", expected=expected, got=got, remedy=remedy))


def _time(
    shape: Shape, card: torch.device, rounds: int, tick: Callable[[str], None] | None
) -> dict[str, Timing]:
    candidates = candidates_on(shape, card)
    fast = {name: work for name, work in candidates.items() if name not in SLOW}
    slow = {name: work for name, work in candidates.items() if name in SLOW}
    found = interleaved(fast, rounds=rounds, warmup=2, tick=tick)
    return {**found, **interleaved(slow, rounds=min(rounds, 2), warmup=0, tick=tick)}


def candidates_on(shape: Shape, card: torch.device) -> dict[str, Callable[[], None]]:
    """Return a training step of each candidate that waits for its device."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs).to(card)
    sizes = (shape.inputs, shape.units)
    networks: dict[str, nn.Module] = {mode: _network(shape, mode) for mode in MODES}
    networks["nn.LSTM, 1 layer"] = nn.LSTM(*sizes, 1)
    networks["nn.LSTM"] = nn.LSTM(*sizes, shape.layers)
    networks["nn.GRU"] = nn.GRU(*sizes, shape.layers)
    found = {name: partial(_train, network.to(card), x) for name, network in networks.items()}
    plain = _network(shape).to(card)

    def plainly() -> None:
        with plain_loops():
            _train(plain, x)

    return {**found, "plain loop": plainly}


def _train(network: nn.Module, x: Tensor) -> None:
    network(x)[0].sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _peak(name: str, steps: int, card: torch.device) -> int:
    """Return the most memory of a training step that reads the last output, above the input."""
    shape = Shape(steps, MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS)
    x = torch.randn(steps, shape.batch, shape.inputs, device=card)
    if name == "nn.LSTM":
        lstm = nn.LSTM(shape.inputs, shape.units, shape.layers).to(card)
        work = partial(lambda net, given: net(given)[0][-1].sum().backward(), lstm)
    else:
        network = _network(shape, name).to(card)
        work = partial(lambda net, given: net.last(given)[0].sum().backward(), network)
    work(x[:64])
    torch.cuda.synchronize(card)
    torch.cuda.reset_peak_memory_stats(card)
    before = torch.cuda.memory_allocated(card)
    work(x)
    torch.cuda.synchronize(card)
    return torch.cuda.max_memory_allocated(card) - before
