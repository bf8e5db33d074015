"""What the solver benchmark measured, as numbers, tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from undamped.lab.benchmarks.timing import Timing


@dataclass(frozen=True)
class FieldTiming:
    """Timings on one field.

    Args:
        name: Of the field.
        evaluations: Of our solve and of torchdiffeq's, forward.
        forward: Seconds of whole solves without gradients, and of as many bare evaluations.
        gradients: Seconds of whole solves with gradients, and of as many bare evaluations
            differentiated in one graph: what no solver can go below. Beside them the same with
            the sums of as many steps, which a solver that leaves them to autograd cannot.
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
        """Return torchdiffeq's seconds per evaluation over ours, for each way both have."""
        if "torchdiffeq" not in self.forward:
            return {}
        found = {"forward": self._ratio(self.forward, "torchdiffeq", "undamped")}
        for ours, theirs in (
            ("backprop", "backprop"),
            ("adjoint", "adjoint"),
            ("checkpoint", "backprop"),
        ):
            names = f"torchdiffeq {theirs}", f"undamped {ours}"
            found[ours] = self._ratio(self.gradients, *names)
        return found

    def bounds(self) -> dict[str, float]:
        """Return the same ratios for a solver that would cost nothing beyond the field."""
        if "torchdiffeq" not in self.forward:
            return {}
        names = "torchdiffeq backprop", "bare field, one graph"
        return {
            "forward": self._ratio(self.forward, "torchdiffeq", "bare field"),
            "backprop": self._ratio(self.gradients, *names),
        }

    def _ratio(self, timings: dict[str, Timing], name: str, other: str) -> float:
        """Return the seconds per evaluation of one candidate over another's."""
        evaluations = self._evaluations(other) / self._evaluations(name)
        return timings[name].over(timings[other]) * evaluations

    def _evaluations(self, name: str) -> int:
        return next(count for who, count in self.evaluations.items() if name.startswith(who))

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
