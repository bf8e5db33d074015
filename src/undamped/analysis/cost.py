"""What a network costs: parameters, flops, seconds and peak memory against length.

Flops are those of matrix products, two for each multiplication with its addition, for one forward
pass. For networks that can be unrolled step by step they are counted on one step, so a fused kernel
that the counter cannot look into costs what it computes; others are counted over a whole pass.
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

from undamped._base.errors import OptionError, explain
from undamped._base.memory import peak_memory
from undamped._base.registry import instruments
from undamped.analysis.core.input_gradients import first_tensor
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import evaluating, unroll, without_fast_path


@instruments.register("cost")
@dataclass(frozen=True)
class Cost(Result):
    """Cost of a forward and backward pass for each length.

    `flops` are those of the forward pass; `seconds` those of the shortest forward and backward
    pass; `memory` the bytes by which such a pass raised the peak of a fresh process, empty if it
    was not measured. A model without time has parameters alone.
    """

    question = "What does a pass cost in parameters, flops, seconds and memory?"
    place = 90
    columns = ("parameters", "flops a step", "there and back", "peak memory")

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
        if probe.in_depth or probe.of_pictures:
            none = np.zeros(0, dtype=np.int64)
            count, batch = count_parameters(probe.model), probe.inputs.shape[int(probe.of_pictures)]
            return Cost(count, none, none, none.astype(float), none, batch, probe.name)
        lengths = sorted({max(2, probe.length // part) for part in (8, 4, 2)})
        network = copy.deepcopy(probe.network)
        said = {"memory": probe.memory, "name": probe.name, "batch_first": probe.network_axis}
        return cost(network, lengths, **said)

    @property
    def sentence(self) -> str:
        """Parameters and the seconds of the longest pass."""
        if not len(self.lengths):
            return f"{self.parameters:,} parameters."
        return (
            f"{self.parameters:,} parameters; {self.seconds[-1]:.3g} s there and back for "
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

    @property
    def layout(self) -> Layout:
        """Seconds against length, both in decades."""
        return Layout(
            "Seconds against length",
            "length [steps]",
            "seconds there and back",
            "One forward and backward pass on this machine; a slope of one is linear in length.",
            log_x=True,
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line, or none where there is no length."""
        if not len(self.lengths):
            return []
        return [style.line(self.lengths, self.seconds, "seconds", mode="lines+markers")]


def count_parameters(module: nn.Module) -> int:
    """Return the number of trained numbers of a module."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def count_flops(module: nn.Module, inputs: Tensor, *, batch_first: bool | None = None) -> int:
    """Return the flops of the matrix products of one forward pass.

    Args:
        module: Any module.
        inputs: What it takes.
        batch_first: Whether that is (batch, time, features); see `gradient_flow`.
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
    # The counter has no formula for fused attention on a CPU; as plain products it counts right.
    with counter, without_fast_path(), sdpa_kernel(SDPBackend.MATH):
        work()
    return int(counter.get_total_flops())


def _pass(module: nn.Module, inputs: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    answer = first_tensor(module(inputs))
    (answer.abs() if answer.is_complex() else answer).sum().backward()
    module.zero_grad(set_to_none=True)


def _prepared_pass(module: nn.Module, inputs: Tensor, axis: int) -> Callable[[], None]:
    """Warm up with two steps, then return the pass whose memory is to be measured."""
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
    """Measure parameters, flops, seconds and memory against length.

    Args:
        module: A module that takes (time, batch, features), or (batch, time, features).
        lengths: The lengths to try, each at least 2.
        batch: Number of sequences.
        input_size: Features per step; the module's own `input_size` if none is given.
        repeats: How often each length is timed, all of them in turn; the shortest time counts.
        memory: Whether to measure peak memory too, each length in a fresh process (seconds each).
        name: What to call the module in plots.
        batch_first: Whether the batch comes first; see `gradient_flow`.
    """
    size = input_size or getattr(module, "input_size", None)
    if not isinstance(size, int) or min(lengths) < 2:
        raise OptionError(
            explain(
                "cost",
                expected="an input_size and lengths of at least 2",
                got=f"input_size={size} and lengths={tuple(lengths)}",
                remedy="Give input_size=… as the number of features per step.",
            )
        )
    like = next(module.parameters())
    few = min(8, *lengths)
    trial = torch.zeros(few, few, size, dtype=like.dtype, device=like.device)
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
    """Return the shortest time of each length: what else the machine does only adds to it.

    All lengths are timed in turn, so that a busy moment slows one repeat of each and not all
    repeats of one. On a CPU a pass takes no longer than the time in which the process ran.
    """
    on_cpu = inputs[0].device.type == "cpu"
    for x in inputs:  # the first pass of a length may compile
        _pass(module, x)
    taken = np.empty((repeats, len(inputs)))
    for row in taken:
        for column, x in enumerate(inputs):
            start, ran = time.perf_counter(), time.process_time()
            _pass(module, x)
            wall, cpu = time.perf_counter() - start, time.process_time() - ran
            row[column] = min(wall, cpu) if on_cpu else wall
    return taken.min(axis=0)
