"""Solvers beside torchdiffeq and the bare field: time per evaluation, gradients, memory.

Everything is timed in turn in one run, so that a busy machine slows all alike, and in seconds of
this process where torch has one thread; ratios are what to quote. torchdiffeq is used where it is
installed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.ode_tables import FieldTiming, OdeBenchmark
from undamped.lab.benchmarks.timing import interleaved, own_clock, peak_memory
from undamped.ode import solve
from undamped.ode.methods.explicit.dopri5 import Dopri5

Tick = Callable[[str], None] | None
TOLERANCE = 1e-5
SMALL_TIMES = [0.5 * k for k in range(9)]
"""Outputs of the small field, which contracts: an adjoint over all of it at once is refused."""


class SmallField(nn.Module):
    """8 → 64 → 8 with tanh."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(8, 64), nn.Linear(64, 8)
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.5)
        self.net = nn.Sequential(layers[0], nn.Tanh(), layers[1])

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        """Return dy/dt."""
        return self.net(y)


class ConvolutionalField(nn.Module):
    """Two 3 × 3 convolutions on 16 channels, with tanh between."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1)
        )

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        """Return dy/dt."""
        return self.net(y)


@benchmarks.register("ode")
def run(*, rounds: int = 7, quick: bool = False, tick: Tick = None) -> OdeBenchmark:
    """Solvers beside torchdiffeq and the bare field: time per evaluation, gradients, memory.

    Args:
        rounds: How often everything is timed.
        quick: Fewer sizes, for a look.
        tick: Called with a name after every single run, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    torch.manual_seed(0)
    small = SmallField(), torch.randn(256, 8), SMALL_TIMES
    images = ConvolutionalField(), torch.randn(8 if quick else 32, 16, 14, 14), [0.0, 1.0]
    fields = (
        _time("8 → 64 → 8, batch 256", *small, rounds, tick),
        _time("convolutional", *images, max(2, rounds // 2), tick),
    )
    steps = [100, 1000] if quick else [100, 1000, 10_000]
    memory = {"reversible": {}, "checkpoint": {}, "backprop": {}}
    for name, sizes in memory.items():
        for count in steps:
            if name == "backprop" and count > 1000:
                continue
            sizes[count] = peak_memory(memory_work, name, count)
            if tick is not None:
                tick(f"{name} {count}")
    missing = () if _has_torchdiffeq() else ("torchdiffeq",)
    return OdeBenchmark(fields, memory, mixed_stiffness(), torch.get_num_threads(), missing)


def _has_torchdiffeq() -> bool:
    return importlib.util.find_spec("torchdiffeq") is not None


def _time(
    name: str, model: nn.Module, y: Tensor, times: list[float], rounds: int, tick: Tick
) -> FieldTiming:
    t = torch.tensor(times)
    evaluations = {"undamped": _evaluations(model, y, times)}
    evaluations["bare field"] = evaluations["undamped"]

    def bare() -> None:
        with torch.no_grad():
            for _ in range(evaluations["bare field"]):
                model(t[0], y)

    def ours() -> None:
        with torch.no_grad():
            solve(model, y, times, rtol=TOLERANCE, atol=TOLERANCE)

    def gradient_of(run_it: Callable[[Tensor], Any]) -> Callable[[], None]:
        def work() -> None:
            model.zero_grad()
            run_it(y.clone().requires_grad_()).pow(2).mean().backward()

        return work

    def ours_with(way: Any) -> Callable[[], None]:
        return gradient_of(
            lambda leaf: (
                solve(model, leaf, times, rtol=TOLERANCE, atol=TOLERANCE, gradient=way).final
            )
        )

    def bare_graph(leaf: Tensor) -> Tensor:
        total = leaf
        for _ in range(evaluations["bare field"]):
            total = total + model(t[0], leaf)
        return total

    def sums_graph(leaf: Tensor) -> Tensor:
        solver, steps = Dopri5(), evaluations["bare field"] // 6
        size, first = (times[-1] - times[0]) / steps, None
        for number in range(steps):
            now = times[0] + number * size
            leaf, taken = solver.stages(model, now, size, leaf, first=first, last=True)
            first = taken[-1]
        return leaf

    forward: dict[str, Callable[[], Any]] = {"bare field": bare, "undamped": ours}
    gradients = {
        "bare field, one graph": gradient_of(bare_graph),
        "bare field and sums, one graph": gradient_of(sums_graph),
    }
    gradients |= {
        f"undamped {way}": ours_with(way) for way in ("checkpoint", "backprop", "adjoint")
    }
    if _has_torchdiffeq():
        import torchdiffeq  # pyright: ignore[reportMissingImports]

        more = {"rtol": TOLERANCE, "atol": TOLERANCE, "method": "dopri5"}
        calls = [0]

        def counted(t: Tensor, y: Tensor) -> Tensor:
            calls[0] += 1
            return model(t, y)

        with torch.no_grad():
            torchdiffeq.odeint(counted, y, t, **more)
        evaluations["torchdiffeq"] = calls[0]

        def theirs() -> None:
            with torch.no_grad():
                torchdiffeq.odeint(model, y, t, **more)

        forward["torchdiffeq"] = theirs
        gradients["torchdiffeq backprop"] = gradient_of(
            lambda leaf: torchdiffeq.odeint(model, leaf, t, **more)[-1]
        )
        gradients["torchdiffeq adjoint"] = gradient_of(
            lambda leaf: torchdiffeq.odeint_adjoint(model, leaf, t, **more)[-1]
        )
    return FieldTiming(
        name,
        evaluations,
        interleaved(forward, rounds=rounds, clock=own_clock(), tick=tick),
        interleaved(gradients, rounds=max(2, rounds // 2), clock=own_clock(), tick=tick),
    )


def _evaluations(model: nn.Module, y: Tensor, times: list[float]) -> int:
    with torch.no_grad():
        return solve(model, y, times, rtol=TOLERANCE, atol=TOLERANCE).evaluations


def memory_work(way: str, steps: int) -> Callable[[], None]:
    """Prepare a solve of so many steps with gradients; the returned function is measured."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, y = SmallField(), torch.randn(64, 8)

    def work(count: int = steps) -> None:
        leaf = y.clone().requires_grad_()
        solution = solve(
            model,
            leaf,
            [0.0, 1.0],
            method="reversible-heun",
            gradient=way,  # type: ignore[arg-type]
            options={"step_size": 1.0 / count, "max_steps": count + 1},
        )
        solution.final.pow(2).mean().backward()

    work(10)  # whatever is loaded once is loaded now
    return work


def mixed_stiffness(end: float = 10.0) -> dict[str, float]:
    """Count evaluations per sample on Van der Pol oscillators, most mild and a few stiff.

    Args:
        end: Time to solve to.
    """
    stiffness = torch.tensor([0.5] * 20 + [2.0] * 8 + [10.0] * 3 + [50.0], dtype=torch.float64)
    angle = torch.linspace(0, 2 * math.pi, len(stiffness) + 1, dtype=torch.float64)[:-1]
    # The stiffness rides in the state, so that the field fits whichever samples are under way.
    start = torch.stack((2 * torch.cos(angle), torch.sin(angle), stiffness), dim=1)

    def oscillators(t: Tensor, y: Tensor) -> Tensor:
        x, v, mu = y.unbind(-1)
        return torch.stack((v, mu * (1 - x**2) * v - x, torch.zeros_like(mu)), dim=-1)

    found = {}
    with torch.no_grad():
        for name, more in (
            ("one step size for the batch", {}),
            ("one for every sample", {"steps": "sample"}),
            ("one for every sample, finished ones left out", {"steps": "sample", "compact": True}),
        ):
            solution = solve(
                oscillators,
                start,
                [0.0, end],
                rtol=1e-6,
                atol=1e-8,
                **more,  # type: ignore[arg-type]
            )
            found[name] = solution.statistics.sample_evaluations / len(start)
    return found
