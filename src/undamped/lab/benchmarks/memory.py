"""Networks with memory beside an LSTM and beside the same network in plain PyTorch.

The plain version is what a careful user would write: fixed buffers, cached keys, one product for
gates and query, no loop over samples. Memory is measured in separate processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.memory import peak_memory
from undamped.lab.benchmarks.timing import Shape, benchmark, build_network, interleaved, train_step
from undamped.lab.report.table import Progress, Report, Table, silent

SHAPE, QUICK = Shape(400, 64, 10, 128), Shape(20, 4, 3, 8)
LONG, QUICK_LONG = Shape(2000, 10, 10, 128), Shape(40, 2, 3, 8)
BASELINE, PLAIN = "lstm", "rellstm in plain PyTorch"
NAMES = (BASELINE, "rellstm", "relrnn", PLAIN)
MEASURED = ("lstm", "rellstm", "memrnn")
RECENT, RELEVANT = 10, 15
TIMES_LSTM, TIMES_PLAIN, LONG_MEGABYTES = 4.0, 5.0, 200.0
"""Targets: RelLSTM at most so many times our LSTM, plain PyTorch at least so many times RelLSTM,
and the peak memory of RelLSTM at 2000 steps."""


class PlainRelLSTM(nn.Module):
    """RelLSTM step by step in PyTorch, with autograd.

    Args:
        inputs: Features of the input.
        units: Hidden units.
        recent: Number of last states that are attended to.
        relevant: Number of relevant ones.
    """

    def __init__(
        self, inputs: int, units: int, recent: int = RECENT, relevant: int = RELEVANT
    ) -> None:
        super().__init__()
        self.units, self.recent, self.relevant = units, recent, relevant
        self.drive = nn.Linear(inputs, 4 * units)
        self.read = nn.Linear(units, 5 * units, bias=False)  # gates and query
        self.key = nn.Linear(units, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return all hidden states (time, batch, units)."""
        batch, n, slots = x.shape[1], self.units, self.recent + self.relevant
        drive = self.drive(x)
        s = c = x.new_zeros(batch, n)
        states, keys = x.new_zeros(batch, slots, n), x.new_zeros(batch, slots, n)
        scores = x.new_zeros(batch, slots)
        valid = torch.zeros(batch, slots, dtype=torch.bool)
        outputs = []
        for drive_t in drive:
            product = self.read(s)
            i, f, g, o = (product[:, : 4 * n] + drive_t).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states, keys, scores, valid = self._remember(h, states, keys, scores, valid)
            e = self.score(torch.tanh(product[:, None, 4 * n :] + keys)).squeeze(-1)
            a = torch.softmax(e.masked_fill(~valid, -torch.inf), dim=1)
            scores = torch.cat(
                (scores[:, : self.recent] + a[:, : self.recent].detach(), scores[:, self.recent :]),
                dim=1,
            )
            s = (h + (a.unsqueeze(1) @ states).squeeze(1)) / 2
            outputs.append(h)
        return torch.stack(outputs), None

    def _remember(
        self, h: Tensor, states: Tensor, keys: Tensor, scores: Tensor, valid: Tensor
    ) -> tuple[Tensor, ...]:
        """Move the oldest recent state to the relevant ones if its score suffices; append h."""
        r = self.recent
        lowest, slot = scores[:, r:].masked_fill(~valid[:, r:], -torch.inf).min(dim=1)
        enters = valid[:, 0] & (scores[:, 0] > lowest)
        replaced = (torch.arange(self.relevant) == slot.unsqueeze(1)) & enters.unsqueeze(1)

        def shifted(old: Tensor, new: Tensor) -> Tensor:
            mask = replaced if old.dim() == 2 else replaced.unsqueeze(-1)
            stored = torch.where(mask, old[:, :1], old[:, r:])
            return torch.cat((old[:, 1:r], new.unsqueeze(1), stored), dim=1)

        ones, zeros = torch.ones_like(valid[:, 0]), torch.zeros_like(scores[:, 0])
        return (
            shifted(states, h),
            shifted(keys, self.key(h)),
            shifted(scores, zeros),
            shifted(valid, ones),
        )


@benchmark("memory")
def run(*, rounds: int = 5, quick: bool = False, progress: Progress = silent) -> Report:
    """Networks with memory beside an LSTM and beside plain PyTorch: speed, memory, state.

    Args:
        rounds: How often each network is timed.
        quick: Small shapes.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    shape, long = (QUICK, QUICK_LONG) if quick else (SHAPE, LONG)
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    candidates = {name: partial(train_step, _build(name, shape), x) for name in NAMES}
    timings = interleaved(candidates, rounds=rounds, progress=progress)
    lengths = (long.steps // 2, long.steps)
    peaks = {}
    for name in MEASURED[1:2] if quick else MEASURED:
        peaks[name] = [
            peak_memory(_memory_work, name, replace(long, steps=steps)) for steps in lengths
        ]
        progress(f"memory {name}")
    numbers = {
        "timings": timings,
        "rellstm_over_lstm": timings["rellstm"].over(timings[BASELINE]),
        "plain_over_rellstm": timings[PLAIN].over(timings["rellstm"]),
        "peak_bytes": peaks,
        "state_bytes": _state_bytes(shape, quick),
    }
    rows = [
        (name, f"{timing.median:.3f}", f"{timing.over(timings[BASELINE]):.2f}")
        for name, timing in timings.items()
    ]
    threads = torch.get_num_threads()
    title = f"{shape}, forward and backward, {threads} threads."
    table = Table(("network", "seconds", "times lstm"), rows, title, _notes(numbers, long))
    return Report([], [table], numbers=numbers, settings={"shape": str(shape)})


def _notes(numbers: dict[str, Any], long: Shape) -> list[str]:
    half, full = long.steps // 2, long.steps
    peaks = [
        f"{name} {low / 1e6:.0f} MB at {half} steps and {high / 1e6:.0f} MB at {full}"
        for name, (low, high) in numbers["peak_bytes"].items()
    ]
    short_state, long_state = numbers["state_bytes"]
    return [
        f"RelLSTM takes {numbers['rellstm_over_lstm']:.2f} times our LSTM (target: at most "
        f"{TIMES_LSTM:g}), plain PyTorch {numbers['plain_over_rellstm']:.1f} times RelLSTM "
        f"(target: at least {TIMES_PLAIN:g}).",
        f"Peak memory forward and backward, batch {long.batch}: {', '.join(peaks)} "
        f"(target: RelLSTM at most {LONG_MEGABYTES:g} MB at {full}).",
        f"The state of RelLSTM takes {short_state:,} bytes a sample after 100 steps and "
        f"{long_state:,} after 10,000.",
    ]


def _build(name: str, shape: Shape) -> nn.Module:
    if name == PLAIN:
        torch.manual_seed(0)
        return PlainRelLSTM(shape.inputs, shape.units)
    options = {"recent": RECENT, "relevant": RELEVANT} if name.startswith("rel") else {}
    return build_network(name, shape, **options)


def _memory_work(name: str, shape: Shape) -> Callable[[], None]:
    """Prepare a pass in a new process; libraries, kernels and input are loaded before it."""
    network = _build(name, shape)
    train_step(network, torch.randn(4, shape.batch, shape.inputs))
    return partial(train_step, network, torch.randn(shape.steps, shape.batch, shape.inputs))


@torch.no_grad()
def _state_bytes(shape: Shape, quick: bool) -> list[int]:
    network = _build("rellstm", shape)
    sizes = []
    for steps in (100, 1000 if quick else 10_000):
        _, state = network(torch.randn(steps, 1, shape.inputs))
        sizes.append(sum(tensor.nbytes for tensor in state))
    return sizes
