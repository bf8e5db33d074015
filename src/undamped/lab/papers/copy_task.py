"""How fast orthogonal, non-normal and unconstrained networks learn to copy: figure 2, table B.2.

The thesis trains expRNN, nnRNN, RNN-orth, EURNN, LSTM and RNN on the copy task with equal numbers
of units; scoRNN, uRNN and oRNN are added here, and the same networks can be trained on the denoise
and adding tasks. Settings are those of the thesis (table A.1) where it has some.

    undamped reproduce copy delay=200 steps=1000 --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from undamped._base.options import PositiveInt
from undamped._base.registry import tasks
from undamped.lab.papers.runs import SeedOptions, check_names, experiment, fit_once
from undamped.lab.report.charts import BLACK_LINE, draw_lines, label, panels
from undamped.lab.report.table import Report, Table

SOLVED = 0.01
"""The loss below which a network has learnt to copy."""
UNITS = 128
NETWORKS: dict[str, dict[str, dict[str, Any]]] = {
    "exprnn": {"train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4}},
    "nnrnn": {"train": {"learning_rate": 5e-4, "constrained_learning_rate": 1e-6}},
    "scornn": {"train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4}},
    "urnn": {"train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4}},
    "eurnn": {
        "model": {"capacity": 4},
        "train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-3, "beta2": 0.5},
    },
    "ornn": {
        "model": {"nonlinearity": "modrelu", "reflections": "units"},
        "train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4},
    },
    "rnn-orth": {
        # The thesis has 2e-4 for all parameters, with which the matrix soon is not orthogonal.
        "model": {"initialisation": "random", "nonlinearity": "modrelu"},
        "train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4},
    },
    "lstm": {"train": {"learning_rate": 5e-4}},
    "rnn": {"train": {"learning_rate": 1e-3, "beta2": 0.9}},
}
"""Model and training options of each network; the optimiser is RMSprop for all."""
VERBS = {"copy": "copy", "denoise": "denoise", "adding": "add"}


@dataclass(frozen=True)
class LearningCurve:
    """The training of one network."""

    network: str
    updates: list[int]
    losses: list[float]
    metric: float
    seconds: float
    parameters: int
    options: dict[str, Any]

    def solved_after(self, loss: float = SOLVED) -> int | None:
        """Return the first update at which the validation loss was below `loss`, or None."""
        pairs = zip(self.updates, self.losses, strict=True)
        return next((update for update, value in pairs if value < loss), None)

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        solved = self.solved_after()
        return (
            self.network,
            f"{self.parameters:,}",
            f"{self.losses[-1]:.4f}",
            f"{self.metric:.3f}",
            "not reached" if solved is None else str(solved),
            f"{self.seconds:.0f}",
        )


@experiment("copy")
def run(
    *,
    task: Literal["copy", "denoise", "adding"] = "copy",
    delay: PositiveInt = 200,
    steps: PositiveInt = 1000,
    networks: Sequence[str] = tuple(NETWORKS),
    batch_size: PositiveInt = 64,
    units: PositiveInt = UNITS,
    **options: Unpack[SeedOptions],
) -> Report:
    """How fast orthogonal, non-normal and unconstrained networks learn to copy.

    Args:
        task: "copy", "denoise" or "adding".
        delay: The delay of the task, or the length of adding.
        steps: Updates of each network.
        networks: Names of networks, of `NETWORKS`.
        batch_size: Sequences per update.
        units: Hidden units of each network.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(delay=50, steps=200, networks=("rnn-orth", "lstm"))

    Reference:
        G. Kerg and others. Non-normal recurrent neural network (nnRNN): learning long time
        dependencies while improving expressivity with transient dynamics. NeurIPS, 2019.
    """
    check_names("network of this experiment", networks, list(NETWORKS))
    size = {"length" if task == "adding" else "delay": delay}
    curves = []
    for name in networks:
        changes = NETWORKS[name].get("model", {})
        changes = {key: units if value == "units" else value for key, value in changes.items()}
        finished = fit_once(
            name,
            task,
            model_options={"hidden_size": units, **changes},
            task_options=size,
            train={
                "optimizer": "rmsprop",
                "steps": steps,
                "batch_size": batch_size,
                "clip": 10.0,
                "validate_every": max(1, steps // 40),
                **NETWORKS[name]["train"],
            },
            seed=options["seed"],
            out=options["out"],
        )
        curves.append(_curve(name, finished))
        options["progress"](name)
    instance = tasks.build(task, **size)
    chance = instance.chance.loss
    header = ("network", "parameters", "last loss", instance.metric, f"updates to {SOLVED:g}")
    title = (
        f"{task}, delay {delay}, {steps} updates, seed {options['seed']}; the naive baseline has "
        f"loss {chance:.4f}."
    )
    return Report(
        curves,
        [Table((*header, "seconds"), [curve.row() for curve in curves], title)],
        {"curves": lambda: _figure(task, delay, chance, curves)},
        {
            "chance_loss": chance,
            "solved_after": {curve.network: curve.solved_after() for curve in curves},
        },
    )


def _curve(name: str, finished: Any) -> LearningCurve:
    rows = [row for row in finished.metrics() if "valid_loss" in row]
    result, settings = finished.result, finished.settings
    return LearningCurve(
        network=name,
        updates=[int(row["step"]) for row in rows],
        losses=[row["valid_loss"] for row in rows],
        metric=next(value for key, value in result["test"].items() if key != "loss"),
        seconds=result["seconds"],
        parameters=settings["model"]["parameters"],
        options={key: settings[key] for key in ("model", "train")},
    )


def _figure(task: str, delay: int, chance: float, curves: Sequence[LearningCurve]) -> Any:
    figure, (axes,) = panels(8, 5)
    draw_lines(axes, {curve.network: (curve.updates, curve.losses) for curve in curves})
    axes.axhline(chance, label="naive baseline", **BLACK_LINE)
    adding = task == "adding"
    title = (
        f"Learning to {VERBS[task]}, {'length' if adding else 'delay'} {delay}: below the dotted "
        "line a network remembers"
    )
    unit = "loss (mean squared error)" if adding else "loss (cross entropy, nats)"
    label(axes, "updates", unit, title, log="y")
    return figure
