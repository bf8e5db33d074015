"""Solvers beside torchdiffeq and the bare field: time per evaluation, gradients, memory.

Everything is timed in turn in one run, so that a busy machine slows all alike; ratios are what to
quote. torchdiffeq is used where it is installed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from undamped.bench.timing import Timing, interleaved, peak_memory
from undamped.solvers import solve

Tick = Callable[[str], None] | None
TOLERANCE = 1e-5


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


@dataclass(frozen=True)
class FieldTiming:
    """Timings on one field.

    Args:
        name: Of the field.
        evaluations: Of our solve and of torchdiffeq's, forward.
        forward: Seconds of whole solves without gradients, and of as many bare evaluations.
        gradients: Seconds of whole solves with gradients, and of as many bare evaluations
            differentiated in one graph: what no solver can go below.
    """

    name: str
    evaluations: dict[str, int]
    forward: dict[str, Timing]
    gradients: dict[str, Timing]

    def per_evaluation(self, name: str) -> float:
        """Return seconds per evaluation of a forward candidate."""
        return self.forward[name].median / self.evaluations[name]

    @property
    def over_bare(self) -> float:
        """Our cost per evaluation over the bare field's."""
        return self.per_evaluation("undamped") / self.per_evaluation("bare field")

    def gradient_per_evaluation(self, name: str) -> float:
        """Return seconds per forward evaluation of a candidate with gradients."""
        who = next(key for key in self.evaluations if name.startswith(key))
        return self.gradients[name].median / self.evaluations[who]

    def ratios(self) -> dict[str, float]:
        """Return torchdiffeq's seconds per evaluation over ours, for each way both have."""
        if "torchdiffeq" not in self.forward:
            return {}
        found = {"forward": self.per_evaluation("torchdiffeq") / self.per_evaluation("undamped")}
        for way in ("backprop", "adjoint"):
            theirs = self.gradient_per_evaluation(f"torchdiffeq {way}")
            found[way] = theirs / self.gradient_per_evaluation(f"undamped {way}")
        theirs = self.gradient_per_evaluation("torchdiffeq backprop")
        found["checkpoint"] = theirs / self.gradient_per_evaluation("undamped checkpoint")
        return found

    def bounds(self) -> dict[str, float]:
        """Return the same ratios for a solver that would cost nothing beyond the field."""
        if "torchdiffeq" not in self.forward:
            return {}
        bare = self.per_evaluation("bare field")
        floor = self.gradient_per_evaluation("bare field, one graph")
        return {
            "forward": self.per_evaluation("torchdiffeq") / bare,
            "backprop": self.gradient_per_evaluation("torchdiffeq backprop") / floor,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "torchdiffeq_over_ours": self.ratios(),
            "torchdiffeq_over_bare": self.bounds(),
            "evaluations": self.evaluations,
            "seconds_per_evaluation": {k: self.per_evaluation(k) for k in self.forward},
            "over_bare": self.over_bare,
            "forward": {k: v.to_dict() for k, v in self.forward.items()},
            "gradients": {k: v.to_dict() for k, v in self.gradients.items()},
        }


@dataclass(frozen=True)
class OdeBenchmark:
    """The whole benchmark.

    Args:
        fields: Timings on each field.
        memory: Peak bytes over the number of steps, for each way to the gradient.
        sample_evaluations: Evaluations per sample on a batch of mixed stiffness.
        threads: Threads PyTorch used.
    """

    fields: tuple[FieldTiming, ...]
    memory: dict[str, dict[int, int]]
    sample_evaluations: dict[str, float]
    threads: int
    missing: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "fields": {timing.name: timing.to_dict() for timing in self.fields},
            "memory_bytes": {k: {str(n): b for n, b in v.items()} for k, v in self.memory.items()},
            "sample_evaluations": self.sample_evaluations,
            "threads": self.threads,
            "missing": list(self.missing),
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the timings as rows of text: field, what, ours or theirs, ratio."""
        rows = []
        for timing in self.fields:
            for name in timing.forward:
                rows.append(
                    (
                        timing.name,
                        "forward, µs per evaluation",
                        name,
                        f"{1e6 * timing.per_evaluation(name):.0f}",
                    )
                )
            for name, value in timing.gradients.items():
                each = 1e6 * timing.gradient_per_evaluation(name)
                text = f"{1e3 * value.median:.1f} ({each:.0f} µs per evaluation)"
                rows.append((timing.name, "with gradients, ms per solve", name, text))
            rows.append((timing.name, "ours / bare", "forward", f"{timing.over_bare:.2f}"))
            bounds = timing.bounds()
            for way, ratio in timing.ratios().items():
                most = f" (at most {bounds[way]:.2f})" if way in bounds else ""
                rows.append((timing.name, "torchdiffeq / ours", way, f"{ratio:.2f}{most}"))
        return rows

    def markdown(self) -> str:
        """Return the tables for a document."""
        lines = ["| field | what | who | value |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows()]
        steps = sorted({n for sizes in self.memory.values() for n in sizes})
        lines += [
            "",
            "| peak memory, MB, over steps | " + " | ".join(map(str, steps)) + " |",
            "|---|" + "---|" * len(steps),
        ]
        for name, sizes in self.memory.items():
            shown = [f"{sizes[n] / 1e6:.1f}" if n in sizes else "" for n in steps]
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
        lines += ["", "| mixed stiffness | evaluations per sample |", "|---|---|"]
        lines += [f"| {name} | {value:.0f} |" for name, value in self.sample_evaluations.items()]
        return "\n".join(lines)

    def summary(self) -> Any:
        """Return a table for the terminal."""
        from rich.table import Table

        table = Table("field", "what", "who", "value", title="bench ode")
        for row in self.rows():
            table.add_row(*row)
        for name, sizes in self.memory.items():
            text = ", ".join(f"{n}: {b / 1e6:.1f}" for n, b in sizes.items())
            table.add_row("memory", "peak MB over steps", name, text)
        for name, value in self.sample_evaluations.items():
            table.add_row("mixed stiffness", "evaluations per sample", name, f"{value:.0f}")
        return table

    def figures(self) -> dict[str, Any]:
        """Return pictures: time per evaluation, and memory over steps."""
        from matplotlib.figure import Figure

        times = Figure(figsize=(7, 3.2), layout="constrained")
        axes = times.subplots(1, len(self.fields), squeeze=False)[0]
        for axis, timing in zip(axes, self.fields, strict=True):
            names = list(timing.forward)
            values = [1e6 * timing.per_evaluation(name) for name in names]
            axis.bar(names, values, color=["#999999", "#0072B2", "#D55E00"][: len(names)])
            axis.set_title(timing.name, fontsize=9)
            axis.set_ylabel("µs per evaluation")
        memory = Figure(figsize=(5, 3.2), layout="constrained")
        axis = memory.subplots()
        for (name, sizes), marker in zip(self.memory.items(), "osD^", strict=False):
            floor = [max(value, 1e5) / 1e6 for value in sizes.values()]
            axis.loglog(list(sizes), floor, marker=marker, label=name)
        axis.set_xlabel("steps")
        axis.set_ylabel("peak memory, MB")
        axis.legend(fontsize=8)
        return {"ode_time": times, "ode_memory": memory}


def run(*, rounds: int = 7, quick: bool = False, tick: Tick = None) -> OdeBenchmark:
    """Run the benchmark.

    Args:
        rounds: How often everything is timed.
        quick: Fewer sizes, for a look.
        tick: Called with a name after every single run, for a progress bar.
    """
    torch.manual_seed(0)
    small = SmallField(), torch.randn(256, 8), [0.0, 4.0]
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

    forward: dict[str, Callable[[], Any]] = {"bare field": bare, "undamped": ours}
    gradients = {"bare field, one graph": gradient_of(bare_graph)}
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
        interleaved(forward, rounds=rounds, tick=tick),
        interleaved(gradients, rounds=max(2, rounds // 2), tick=tick),
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
