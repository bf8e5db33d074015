"""Solvers compared with torchdiffeq and the bare field: time per evaluation, gradients, memory.

Everything is timed in turn in one run, so that a busy machine slows all alike, and in seconds of
this process where torch has one thread; ratios are the numbers to quote. torchdiffeq is used where
it is installed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped.lab.benchmarks.timing import Timing, benchmark, cpu_clock, interleaved, peak_memory
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.ode import solve
from undamped.ode.methods.explicit.methods import Dopri5

TOLERANCE = 1e-5
SMALL_TIMES = [0.5 * k for k in range(9)]
"""Outputs of the small field. It contracts: an adjoint without intermediate outputs is refused."""


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
class Problem:
    """An initial value problem, and ways to solve and differentiate it.

    Args:
        model: The field.
        start: The initial state.
        times: Output times.
    """

    model: nn.Module
    start: Tensor
    times: list[float]

    def solve(self, start: Tensor, **options: Any) -> Any:
        """Solve it with our dopri5."""
        return solve(self.model, start, self.times, rtol=TOLERANCE, atol=TOLERANCE, **options)

    def torchdiffeq(self, name: str, field: Any, start: Tensor) -> Any:
        """Solve it with a function of torchdiffeq."""
        import torchdiffeq  # pyright: ignore[reportMissingImports]

        options = {"rtol": TOLERANCE, "atol": TOLERANCE, "method": "dopri5"}
        return getattr(torchdiffeq, name)(field, start, torch.tensor(self.times), **options)

    def evaluate(self, count: int) -> None:
        """Evaluate the field a number of times."""
        time = torch.tensor(self.times[0])
        for _ in range(count):
            self.model(time, self.start)

    def bare_graph(self, count: int, leaf: Tensor) -> Tensor:
        """Return the sum of a number of evaluations, in one graph."""
        total, time = leaf, torch.tensor(self.times[0])
        for _ in range(count):
            total = total + self.model(time, leaf)
        return total

    def steps_graph(self, count: int, leaf: Tensor) -> Tensor:
        """Return the state after steps of dopri5 with a number of evaluations, in one graph."""
        solver, steps = Dopri5(), count // 6
        size, first = (self.times[-1] - self.times[0]) / steps, None
        for number in range(steps):
            now = self.times[0] + number * size
            leaf, stages = solver.stages(self.model, now, size, leaf, first=first, last=True)
            first = stages[-1]
        return leaf

    def gradient(self, forward: Callable[[Tensor], Tensor]) -> None:
        """Differentiate the mean square of what a function returns for the initial state."""
        self.model.zero_grad()
        forward(self.start.clone().requires_grad_()).pow(2).mean().backward()


@dataclass(frozen=True)
class FieldTiming:
    """Timings on one field.

    Args:
        name: Of the field.
        evaluations: Of our solve and of torchdiffeq's, forward.
        forward: Seconds of whole solves without gradients, and of as many bare evaluations.
        gradients: Seconds of whole solves with gradients, and of as many bare evaluations
            differentiated in one graph, which is a lower bound of every solver; and the same with
            the sums of as many steps, the lower bound of solvers that leave them to autograd.
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
        return self._ratio(self.forward, "undamped", "bare field")

    def gradient_per_evaluation(self, name: str) -> float:
        """Return seconds per forward evaluation of a candidate with gradients."""
        return self.gradients[name].median / self._evaluations(name)

    def ratios(self) -> dict[str, float]:
        """Return torchdiffeq's seconds per evaluation over ours, by kind of gradient."""
        if "torchdiffeq" not in self.forward:
            return {}
        ratios = {"forward": self._ratio(self.forward, "torchdiffeq", "undamped")}
        for ours, theirs in (
            ("backprop", "backprop"),
            ("adjoint", "adjoint"),
            ("checkpoint", "backprop"),
        ):
            names = f"torchdiffeq {theirs}", f"undamped {ours}"
            ratios[ours] = self._ratio(self.gradients, *names)
        return ratios

    def bounds(self) -> dict[str, float]:
        """Return the same ratios for a solver that would cost nothing beyond the field."""
        if "torchdiffeq" not in self.forward:
            return {}
        names = "torchdiffeq backprop", "bare field, one graph"
        return {
            "forward": self._ratio(self.forward, "torchdiffeq", "bare field"),
            "backprop": self._ratio(self.gradients, *names),
        }

    def _ratio(self, timings: dict[str, Timing], name: str, baseline: str) -> float:
        """Return the seconds per evaluation of one candidate over another's."""
        evaluations = self._evaluations(baseline) / self._evaluations(name)
        return timings[name].over(timings[baseline]) * evaluations

    def _evaluations(self, name: str) -> int:
        return next(n for prefix, n in self.evaluations.items() if name.startswith(prefix))

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

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the rows of the table: field, quantity, candidate, value."""
        rows = []
        for name in self.forward:
            value = f"{1e6 * self.per_evaluation(name):.0f}"
            rows.append((self.name, "forward, µs per evaluation", name, value))
        for name, timing in self.gradients.items():
            each = 1e6 * self.gradient_per_evaluation(name)
            value = f"{1e3 * timing.median:.1f} ({each:.0f} µs per evaluation)"
            rows.append((self.name, "with gradients, ms per solve", name, value))
        rows.append((self.name, "ours / bare", "forward", f"{self.over_bare:.2f}"))
        bounds = self.bounds()
        for gradient, ratio in self.ratios().items():
            bound = f" (at most {bounds[gradient]:.2f})" if gradient in bounds else ""
            rows.append((self.name, "torchdiffeq / ours", gradient, f"{ratio:.2f}{bound}"))
        return rows


@benchmark("ode")
def run(*, rounds: int = 7, quick: bool = False, progress: Progress = silent) -> Report:
    """Solvers compared with torchdiffeq and the bare field: time per evaluation, gradients, memory.

    Args:
        rounds: How often everything is timed.
        quick: Fewer sizes.
        progress: Called with a name after every single run.

    Example:
        >>> result = run(quick=True)
    """
    torch.manual_seed(0)
    small = Problem(SmallField(), torch.randn(256, 8), SMALL_TIMES)
    images = torch.randn(8 if quick else 32, 16, 14, 14)
    convolutional = Problem(ConvolutionalField(), images, [0.0, 1.0])
    fields = [
        time_field("8 → 64 → 8, batch 256", small, rounds, progress),
        time_field("convolutional", convolutional, max(2, rounds // 2), progress),
    ]
    steps = [100, 1000] if quick else [100, 1000, 10_000]
    memory: dict[str, dict[int, int]] = {}
    for name in ("reversible", "checkpoint", "backprop"):
        memory[name] = {}
        for count in steps if name != "backprop" else steps[:2]:
            memory[name][count] = peak_memory(memory_work, name, count)
            progress(f"{name} {count}")
    return ode_report(fields, memory, mixed_stiffness())


def ode_report(
    fields: Sequence[FieldTiming],
    memory: Mapping[str, Mapping[int, int]],
    sample_evaluations: Mapping[str, float],
) -> Report:
    """Return the report of all measurements.

    Args:
        fields: Timings on each field.
        memory: Peak bytes by number of steps, for each kind of gradient.
        sample_evaluations: Evaluations per sample on a batch of mixed stiffness.
    """
    steps = sorted({count for sizes in memory.values() for count in sizes})
    sizes = [
        (name, *(f"{peaks[n] / 1e6:.1f}" if n in peaks else "" for n in steps))
        for name, peaks in memory.items()
    ]
    evaluations = [(name, f"{value:.0f}") for name, value in sample_evaluations.items()]
    rows = [row for field in fields for row in field.rows()]
    missing = [] if _has_torchdiffeq() else ["torchdiffeq"]
    return Report(
        [{"name": field.name, **field.to_dict()} for field in fields],
        [
            Table(("field", "what", "who", "value"), rows, text_columns=4),
            Table(("peak memory, MB, over steps", *map(str, steps)), sizes),
            Table(("mixed stiffness", "evaluations per sample"), evaluations),
        ],
        {"ode_time": lambda: _time_figure(fields), "ode_memory": lambda: _memory_figure(memory)},
        {"memory_bytes": memory, "sample_evaluations": sample_evaluations},
        {"missing": missing},
    )


def _has_torchdiffeq() -> bool:
    return importlib.util.find_spec("torchdiffeq") is not None


def time_field(name: str, problem: Problem, rounds: int, progress: Progress) -> FieldTiming:
    """Time solves and gradients of a problem.

    Args:
        name: The name of its field.
        problem: The problem.
        rounds: How often everything is timed.
        progress: Called with a name after every single run.
    """
    start = problem.start
    with torch.no_grad():
        count = problem.solve(start).evaluations
    evaluations = {"undamped": count, "bare field": count}
    forward: dict[str, Callable[[], Any]] = {
        "bare field": partial(problem.evaluate, count),
        "undamped": partial(problem.solve, start),
    }
    graphs: dict[str, Callable[[Tensor], Tensor]] = {
        "bare field, one graph": partial(problem.bare_graph, count),
        "bare field and sums, one graph": partial(problem.steps_graph, count),
    }
    for kind in ("checkpoint", "backprop", "adjoint"):
        graphs[f"undamped {kind}"] = lambda leaf, k=kind: problem.solve(leaf, gradient=k).final
    if _has_torchdiffeq():
        evaluations["torchdiffeq"] = _torchdiffeq_evaluations(problem)
        forward["torchdiffeq"] = partial(problem.torchdiffeq, "odeint", problem.model, start)
        for kind, function in (("backprop", "odeint"), ("adjoint", "odeint_adjoint")):
            graphs[f"torchdiffeq {kind}"] = lambda leaf, function=function: problem.torchdiffeq(
                function, problem.model, leaf
            )[-1]
    gradients = {key: partial(problem.gradient, graph) for key, graph in graphs.items()}
    clock = cpu_clock()
    with torch.no_grad():
        forward_timings = interleaved(forward, rounds=rounds, clock=clock, progress=progress)
    gradient_timings = interleaved(
        gradients, rounds=max(2, rounds // 2), clock=clock, progress=progress
    )
    return FieldTiming(name, evaluations, forward_timings, gradient_timings)


@torch.no_grad()
def _torchdiffeq_evaluations(problem: Problem) -> int:
    calls = 0

    def counted(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.model(t, y)

    problem.torchdiffeq("odeint", counted, problem.start)
    return calls


def memory_work(gradient: str, steps: int) -> Callable[[], None]:
    """Prepare a solve of a number of steps with gradients; the returned function is measured."""
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
            gradient=gradient,  # type: ignore[arg-type]
            options={"step_size": 1.0 / count, "max_steps": count + 1},
        )
        solution.final.pow(2).mean().backward()

    work(10)  # loads what is loaded once
    return work


def mixed_stiffness(end: float = 10.0) -> dict[str, float]:
    """Count evaluations per sample on Van der Pol oscillators, most mild and a few stiff.

    Args:
        end: Time to solve to.
    """
    stiffness = torch.tensor([0.5] * 20 + [2.0] * 8 + [10.0] * 3 + [50.0], dtype=torch.float64)
    angle = torch.linspace(0, 2 * math.pi, len(stiffness) + 1, dtype=torch.float64)[:-1]
    # The stiffness is part of the state, so that the field fits any subset of the samples.
    start = torch.stack((2 * torch.cos(angle), torch.sin(angle), stiffness), dim=1)

    def oscillators(t: Tensor, y: Tensor) -> Tensor:
        x, v, mu = y.unbind(-1)
        return torch.stack((v, mu * (1 - x**2) * v - x, torch.zeros_like(mu)), dim=-1)

    evaluations = {}
    with torch.no_grad():
        for name, options in (
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
                **options,  # type: ignore[arg-type]
            )
            evaluations[name] = solution.statistics.sample_evaluations / len(start)
    return evaluations


def _time_figure(fields: Sequence[FieldTiming]) -> Any:
    figure, all_axes = panels(7, 3.2, columns=len(fields))
    for axes, timing in zip(all_axes, fields, strict=True):
        names = list(timing.forward)
        values = [1e6 * timing.per_evaluation(name) for name in names]
        axes.bar(names, values, color=["#999999", "#0072B2", "#D55E00"][: len(names)])
        label(axes, "", "µs per evaluation", timing.name)
    return figure


def _memory_figure(memory: Mapping[str, Mapping[int, int]]) -> Any:
    figure, (axes,) = panels(5, 3.2)
    for (name, sizes), marker in zip(memory.items(), "osD^", strict=False):
        megabytes = [max(value, 1e5) / 1e6 for value in sizes.values()]
        axes.plot(list(sizes), megabytes, marker=marker, label=name)
    label(axes, "steps", "peak memory, MB", log="xy")
    return figure
