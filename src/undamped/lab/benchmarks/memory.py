"""Networks with memory beside an LSTM and beside the same network in plain PyTorch.

The plain version is what a careful user would write: fixed buffers, cached keys, one product for
gates and query, no loop over samples. Memory is measured in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.memory import peak_memory
from undamped._base.registry import benchmarks, models
from undamped.lab.benchmarks.recurrent_tables import Shape
from undamped.lab.benchmarks.tables import markdown_table, terminal_table
from undamped.lab.benchmarks.timing import Timing, interleaved

SHAPE, QUICK = Shape(400, 64, 10, 128), Shape(20, 4, 3, 8)
LONG, QUICK_LONG = Shape(2000, 10, 10, 128), Shape(40, 2, 3, 8)
BASELINE, PLAIN = "lstm", "rellstm in plain PyTorch"
NAMES = (BASELINE, "rellstm", "relrnn", PLAIN)
MEASURED = ("lstm", "rellstm", "memrnn")
RECENT, KEPT = 10, 15
HEADER = ("network", "seconds", "times lstm")
TIMES_LSTM, TIMES_PLAIN, LONG_MEGABYTES = 4.0, 5.0, 200.0
"""What is wanted: RelLSTM at most so many times our LSTM, plain PyTorch at least so many times
RelLSTM, and RelLSTM's peak at 2000 steps."""


class PlainRelLSTM(nn.Module):
    """RelLSTM step by step in PyTorch, with autograd.

    Args:
        inputs: Features of the input.
        units: Hidden units.
        recent: How many last states are attended to.
        kept: How many relevant ones are.
    """

    def __init__(self, inputs: int, units: int, recent: int = RECENT, kept: int = KEPT) -> None:
        super().__init__()
        self.units, self.recent, self.kept = units, recent, kept
        self.drive = nn.Linear(inputs, 4 * units)
        self.read = nn.Linear(units, 5 * units, bias=False)  # gates and query
        self.key = nn.Linear(units, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return all hidden states (time, batch, units)."""
        batch, n, slots = x.shape[1], self.units, self.recent + self.kept
        drive = self.drive(x)
        s = c = x.new_zeros(batch, n)
        states, keys = x.new_zeros(batch, slots, n), x.new_zeros(batch, slots, n)
        scores = x.new_zeros(batch, slots)
        seen = torch.zeros(batch, slots, dtype=torch.bool)
        outputs = []
        for drive_t in drive:
            product = self.read(s)
            i, f, g, o = (product[:, : 4 * n] + drive_t).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states, keys, scores, seen = self._remember(h, states, keys, scores, seen)
            e = self.score(torch.tanh(product[:, None, 4 * n :] + keys)).squeeze(-1)
            a = torch.softmax(e.masked_fill(~seen, -torch.inf), dim=1)
            scores = torch.cat(
                (scores[:, : self.recent] + a[:, : self.recent].detach(), scores[:, self.recent :]),
                dim=1,
            )
            s = (h + (a.unsqueeze(1) @ states).squeeze(1)) / 2
            outputs.append(h)
        return torch.stack(outputs), None

    def _remember(
        self, h: Tensor, states: Tensor, keys: Tensor, scores: Tensor, seen: Tensor
    ) -> tuple[Tensor, ...]:
        """Move the oldest recent state to the kept ones where it is relevant; append h."""
        r = self.recent
        least, place = scores[:, r:].masked_fill(~seen[:, r:], -torch.inf).min(dim=1)
        enters = seen[:, 0] & (scores[:, 0] > least)
        here = (torch.arange(self.kept) == place.unsqueeze(1)) & enters.unsqueeze(1)

        def moved(old: Tensor, new: Tensor) -> Tensor:
            mask = here if old.dim() == 2 else here.unsqueeze(-1)
            kept = torch.where(mask, old[:, :1], old[:, r:])
            return torch.cat((old[:, 1:r], new.unsqueeze(1), kept), dim=1)

        ones, zeros = torch.ones_like(seen[:, 0]), torch.zeros_like(scores[:, 0])
        return moved(states, h), moved(keys, self.key(h)), moved(scores, zeros), moved(seen, ones)


@dataclass(frozen=True)
class MemoryBenchmark:
    """All measurements of one run.

    Args:
        threads: How many torch had.
        shape: The size of the timed passes.
        timings: By network.
        long: The size of the longest pass whose memory was measured.
        peaks: Peak memory above the input in bytes, by network, for half of that length and all.
        state_bytes: Bytes of RelLSTM's state after 100 and after 10,000 steps.
    """

    threads: int
    shape: Shape
    timings: dict[str, Timing]
    long: Shape
    peaks: dict[str, tuple[int, int]]
    state_bytes: tuple[int, int]

    @property
    def times_lstm(self) -> float:
        """How many times as long as our LSTM RelLSTM takes."""
        return self.timings["rellstm"].over(self.timings[BASELINE])

    @property
    def times_plain(self) -> float:
        """How many times as long plain PyTorch takes for the same."""
        return self.timings[PLAIN].over(self.timings["rellstm"])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON."""
        return {
            "threads": self.threads,
            "shape": str(self.shape),
            "timings": {name: timing.to_dict() for name, timing in self.timings.items()},
            "rellstm_over_lstm": self.times_lstm,
            "plain_over_rellstm": self.times_plain,
            "peak_bytes": {name: list(peaks) for name, peaks in self.peaks.items()},
            "state_bytes": list(self.state_bytes),
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the timings as a table."""
        return [
            (name, f"{timing.median:.3f}", f"{timing.over(self.timings[BASELINE]):.2f}")
            for name, timing in self.timings.items()
        ]

    def sentences(self) -> list[str]:
        """Return what else was measured."""
        half, whole = self.long.steps // 2, self.long.steps
        peaks = [
            f"{name} {low / 1e6:.0f} MB at {half} steps and {high / 1e6:.0f} MB at {whole}"
            for name, (low, high) in self.peaks.items()
        ]
        return [
            f"RelLSTM takes {self.times_lstm:.2f} times our LSTM (at most {TIMES_LSTM:g} wanted), "
            f"plain PyTorch {self.times_plain:.1f} times RelLSTM (at least {TIMES_PLAIN:g}).",
            f"Peak memory forward and backward, batch {self.long.batch}: {', '.join(peaks)} "
            f"(RelLSTM at most {LONG_MEGABYTES:g} MB at {whole} wanted).",
            f"RelLSTM's state takes {self.state_bytes[0]:,} bytes a sample after 100 steps and "
            f"{self.state_bytes[1]:,} after 10,000.",
        ]

    def markdown(self) -> str:
        """Return table and sentences for a page."""
        title = f"{self.shape}, forward and backward, {self.threads} threads."
        return "\n\n".join([title, markdown_table(HEADER, self.rows()), *self.sentences()])

    def summary(self) -> Any:
        """Return the same for a terminal."""
        from rich.console import Group

        table = terminal_table(HEADER, self.rows(), f"{self.shape}, {self.threads} threads")
        return Group(table, *self.sentences())

    def figures(self) -> dict[str, Any]:
        """No pictures: there are two numbers."""
        return {}


@benchmarks.register("memory")
def run(
    *, rounds: int = 5, quick: bool = False, tick: Callable[[str], None] | None = None
) -> MemoryBenchmark:
    """Networks with memory beside an LSTM and beside plain PyTorch: speed, memory, state.

    Args:
        rounds: How often each network is timed.
        quick: Small shapes, to see that everything runs.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    shape, long = (QUICK, QUICK_LONG) if quick else (SHAPE, LONG)
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    candidates = {name: partial(_train, _build(name, shape), x) for name in NAMES}
    timings = interleaved(candidates, rounds=rounds, tick=tick)
    peaks = {}
    for name in MEASURED[1:2] if quick else MEASURED:
        low, high = (
            peak_memory(_memory_work, name, Shape(steps, long.batch, long.inputs, long.units))
            for steps in (long.steps // 2, long.steps)
        )
        peaks[name] = (low, high)
        if tick is not None:
            tick(f"memory {name}")
    return MemoryBenchmark(
        torch.get_num_threads(), shape, timings, long, peaks, _state_bytes(shape, quick)
    )


def _build(name: str, shape: Shape) -> nn.Module:
    torch.manual_seed(0)
    if name == PLAIN:
        return PlainRelLSTM(shape.inputs, shape.units)
    options = {"recent": RECENT, "kept": KEPT} if name.startswith("rel") else {}
    return models.build(name, input_size=shape.inputs, hidden_size=shape.units, **options)


def _train(network: nn.Module, x: Tensor) -> None:
    network(x)[0].sum().backward()


def _memory_work(name: str, shape: Shape) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries, kernels and input are in place before."""
    network = _build(name, shape)
    _train(network, torch.randn(4, shape.batch, shape.inputs))
    return partial(_train, network, torch.randn(shape.steps, shape.batch, shape.inputs))


@torch.no_grad()
def _state_bytes(shape: Shape, quick: bool) -> tuple[int, int]:
    network = _build("rellstm", shape)
    sizes = []
    for steps in (100, 1000 if quick else 10_000):
        _, state = network(torch.randn(steps, 1, shape.inputs))
        sizes.append(sum(part.nbytes for part in state))
    return sizes[0], sizes[1]
