"""The cost of a network: parameters, flops, seconds and peak memory over the length.

Flops count the matrix products of one forward pass, two for each multiplication with its addition.
For networks that can be unrolled they are counted on a single step, because the counter does not
support fused kernels; other networks are counted over a whole pass.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.memory import peak_memory
from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Probe, Result, Style, Trace
from undamped.analysis.core.gradients import first_tensor
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import evaluating, unroll, without_fast_path


@instruments.register("cost")
@dataclass(frozen=True)
class Cost(Result):
    """Cost of a forward and backward pass for each length.

    `flops` are those of the forward pass, `seconds` those of the fastest forward and backward pass,
    and `memory` the bytes by which such a pass raised the peak memory of a fresh process, empty if
    it was not measured. A model without a time axis only has `parameters`.
    """

    question = "How many parameters, flops, seconds and bytes does a pass need?"
    page_order = 90
    slow = True
    columns = ("parameters", "flops per step", "forward and backward", "peak memory")
    figure_layout = Layout(
        "Time over length",
        "length [steps]",
        "seconds, forward and backward",
        "One forward and backward pass on this machine; slope one means linear in the length.",
        log_x=True,
        log_y=True,
    )

    parameters: int
    lengths: NDArray[np.int64]
    flops: NDArray[np.int64]
    seconds: NDArray[np.float64]
    memory: NDArray[np.int64]
    batch: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Cost:
        """Measure an eighth, a quarter and half of the inputs' length."""
        if probe.in_depth or probe.of_images:
            none = np.zeros(0, dtype=np.int64)
            count, batch = count_parameters(probe.model), probe.inputs.shape[int(probe.of_images)]
            return Cost(count, none, none, none.astype(float), none, batch, probe.name)
        lengths = sorted({max(2, probe.length // part) for part in (8, 4, 2)})
        network = copy.deepcopy(probe.network)
        options = {"memory": probe.memory, "name": probe.name, "batch_first": probe.network_axis}
        return cost(network, lengths, **options)

    @property
    def sentence(self) -> str:
        if not len(self.lengths):
            return f"{self.parameters:,} parameters."
        return (
            f"{self.parameters:,} parameters; {self.seconds[-1]:.3g} s forward and backward for "
            f"{self.lengths[-1]} steps, batch {self.batch}."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Parameters, and the rest at the longest length."""
        if not len(self.lengths):
            return [(f"{self.parameters:,}", "", "", "")]
        length = int(self.lengths[-1])
        flops = self.flops[-1] / (length * self.batch)
        seconds = f"{self.seconds[-1]:.3g} s for {length} steps, batch {self.batch}"
        memory = f"{self.memory[-1] / 2**20:.1f} MB" if len(self.memory) else "not measured"
        return [(f"{self.parameters:,}", f"{flops:,.0f}", seconds, memory)]

    def traces(self, style: Style) -> list[Trace]:
        """One line; none without a time axis."""
        if not len(self.lengths):
            return []
        return [style.line(self.lengths, self.seconds, "seconds", mode="lines+markers")]


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters of a module."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def count_flops(module: nn.Module, inputs: Tensor, *, batch_first: bool | None = None) -> int:
    """Return the flops of the matrix products of one forward pass.

    Args:
        module: Any module.
        inputs: Its inputs.
        batch_first: Whether they are (batch, time, features); see `gradient_flow`.
    """
    with evaluating(module), torch.no_grad():
        first = layout_of(module, inputs, batch_first).batch_first
        x = inputs.transpose(0, 1) if first and inputs.dim() == 3 else inputs
        steps = unroll(module, x, batch_first=first) if x.dim() == 3 else None
        if steps is None:
            return _counted(lambda: module(inputs))
        steps.prepare()
        states = steps.initial(x.shape[1], x)
        return len(x) * _counted(lambda: steps.step(x[0], states))


def _counted(work: Callable[[], Any]) -> int:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    # The counter has no formula for fused attention on a CPU.
    with counter, without_fast_path(), sdpa_kernel(SDPBackend.MATH):
        work()
    return int(counter.get_total_flops())


def _pass(module: nn.Module, inputs: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    answer = first_tensor(module(inputs))
    (answer.abs() if answer.is_complex() else answer).sum().backward()
    module.zero_grad(set_to_none=True)


def _prepared_pass(module: nn.Module, inputs: Tensor, axis: int) -> Callable[[], None]:
    """Warm up with two steps, then return the pass whose memory will be measured."""
    _pass(module, inputs.narrow(axis, 0, 2))
    return lambda: _pass(module, inputs)


def cost(
    module: nn.Module,
    lengths: Sequence[int] = (100, 200, 400, 800),
    *,
    batch: int = 4,
    input_size: int | None = None,
    repeats: int = 7,
    memory: bool = False,
    name: str | None = None,
    batch_first: bool | None = None,
) -> Cost:
    """Measure parameters, flops, seconds and memory over the length.

    Args:
        module: A module that takes (time, batch, features), or (batch, time, features).
        lengths: The lengths, each at least 2.
        batch: Number of sequences.
        input_size: Features per step; by default the `input_size` of the module.
        repeats: Repetitions of each length, all lengths in turn; the shortest time counts.
        memory: Whether to measure peak memory, each length in a fresh process (seconds each).
        name: Name of the module in figures.
        batch_first: Whether the batch comes first; see `gradient_flow`.
    """
    size = input_size or getattr(module, "input_size", None)
    if not isinstance(size, int) or min(lengths) < 2:
        raise OptionError(
            f"cost needs an input_size and lengths ≥ 2, got input_size={size} and "
            f"lengths={tuple(lengths)}. Give input_size=… as the number of features per step."
        )
    like = next(module.parameters())
    short = min(8, *lengths)
    trial = torch.zeros(short, short, size, dtype=like.dtype, device=like.device)
    first = layout_of(module, trial, batch_first).batch_first
    shapes = [(batch, n, size) if first else (n, batch, size) for n in lengths]
    inputs = [torch.zeros(s, dtype=like.dtype, device=like.device) for s in shapes]
    return Cost(
        count_parameters(module),
        np.array(lengths, dtype=np.int64),
        np.array([count_flops(module, x, batch_first=first) for x in inputs], dtype=np.int64),
        _seconds(module, inputs, repeats),
        np.array(
            [peak_memory(_prepared_pass, module, x, int(first)) for x in inputs] if memory else [],
            dtype=np.int64,
        ),
        batch,
        name or type(module).__name__,
    )


def _seconds(module: nn.Module, inputs: list[Tensor], repeats: int) -> NDArray[np.float64]:
    """Return the shortest time of each length, which other processes disturb least.

    All lengths are timed in turn, so that a busy moment slows one repeat of each length and not all
    repeats of one. On a CPU the CPU time is an upper limit of a pass, too.
    """
    on_cpu = inputs[0].device.type == "cpu"
    for x in inputs:  # the first pass of a length may compile
        _pass(module, x)
    seconds = np.empty((repeats, len(inputs)))
    for row in seconds:
        for column, x in enumerate(inputs):
            start, ran = time.perf_counter(), time.process_time()
            _pass(module, x)
            wall, cpu = time.perf_counter() - start, time.process_time() - ran
            row[column] = min(wall, cpu) if on_cpu else wall
    return seconds.min(axis=0)
