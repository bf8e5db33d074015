"""Pictures of the UnICORNN benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.benchmarks.unicornn import UnicornnBenchmark

OURS, OTHERS = "#0072B2", "#E69F00"  # blue and orange, told apart by everybody


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def speed_figure(result: UnicornnBenchmark) -> Any:
    """Bars of seconds per candidate, one panel a shape."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2 * len(result.timings)), layout="constrained")
    panels = figure.subplots(len(result.timings), 1, squeeze=False)[:, 0]
    for axes, (shape, found) in zip(panels, result.timings.items(), strict=True):
        names = list(found)
        colours = [
            OURS if name in ("reversible", "checkpoint", "stored") else OTHERS for name in names
        ]
        axes.barh(names, [found[name].median for name in names], color=colours)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel("seconds, forward and backward pass (log scale)")
        axes.set_title(f"steps, batch, inputs, units, layers = {shape}")
    figure.suptitle("Blue is UnICORNN here; shorter bars are faster")
    return figure


def memory_figure(result: UnicornnBenchmark) -> Any:
    """Peak memory against the length of the sequence."""
    figure, axes = _axes(7, 4.5)
    styles = ("-", "--", "-.", ":")
    for at, (name, found) in enumerate(result.memory.items()):
        axes.plot(
            list(found),
            [max(value, 1) / 1e6 for value in found.values()],
            marker="o",
            linestyle=styles[at % len(styles)],
            color=OTHERS if name == "nn.LSTM" else OURS,
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("steps")
    axes.set_ylabel("peak memory above the input, MB")
    axes.set_title("Reversible stays flat however long the sequence")
    axes.legend()
    return figure


def streaming_figure(result: UnicornnBenchmark) -> Any:
    """Steps per second, one sample at a time."""
    figure, axes = _axes(7, 3)
    names = list(result.streaming)
    colours = [OTHERS if name == "nn.LSTM" else OURS for name in names]
    axes.barh(names, [result.streaming[name] for name in names], color=colours)
    axes.axvline(20_000, color="black", linestyle=":", label="20,000 steps per second")
    axes.invert_yaxis()
    axes.set_xlabel("steps per second, 2 layers of 32")
    axes.set_title("Longer bars are faster")
    axes.legend()
    return figure
