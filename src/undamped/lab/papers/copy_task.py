"""How fast orthogonal, non-normal and plain networks learn to copy: figure 2 and table B.2.

The thesis trains expRNN, nnRNN, RNN-orth, EURNN, LSTM and RNN on the copy task with equal numbers
of units; here scoRNN, uRNN and oRNN stand beside them, and the same networks can be sent to the
denoise and adding tasks. Settings are the thesis's (table A.1) where it has some.

    undamped reproduce copy delay=200 steps=1000 --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from undamped._base.options import NonNegativeInt, PositiveInt, unknown_name
from undamped._base.registry import experiments

SOLVED = 0.01
"""The loss below which a network counts as having learnt to copy."""
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
        # The thesis has 2e-4 for everything, with which the matrix soon is no rotation any more.
        "model": {"initialisation": "random", "nonlinearity": "modrelu"},
        "train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4},
    },
    "lstm": {"train": {"learning_rate": 5e-4}},
    "rnn": {"train": {"learning_rate": 1e-3, "beta2": 0.9}},
}
"""Model and training options of each network; the optimiser is RMSprop throughout."""
LINES = ("-", "--", "-.")
VERBS = {"copy": "copy", "denoise": "denoise", "adding": "add"}


@dataclass(frozen=True)
class Outcome:
    """One network's way through training."""

    updates: list[int]
    losses: list[float]
    metric: float
    seconds: float
    parameters: int
    options: dict[str, Any]

    def solved_after(self, loss: float) -> int | None:
        """Return the first update at which the loss was below `loss`, or None."""
        pairs = zip(self.updates, self.losses, strict=True)
        return next((update for update, found in pairs if found < loss), None)


@dataclass(frozen=True)
class CopyExperiment:
    """Curves, times and final scores of all networks."""

    task: str
    delay: int
    steps: int
    seed: int
    chance: float
    metric: str
    outcomes: dict[str, Outcome]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "task": self.task,
            "delay": self.delay,
            "steps": self.steps,
            "seed": self.seed,
            "chance_loss": self.chance,
            "networks": {
                name: {**vars(outcome), "solved_after": outcome.solved_after(SOLVED)}
                for name, outcome in self.outcomes.items()
            },
        }

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name, outcome in self.outcomes.items():
            solved = outcome.solved_after(SOLVED)
            rows.append(
                (
                    name,
                    f"{outcome.parameters:,}",
                    f"{outcome.losses[-1]:.4f}",
                    f"{outcome.metric:.3f}",
                    "not reached" if solved is None else str(solved),
                    f"{outcome.seconds:.0f}",
                )
            )
        return rows

    @property
    def _headings(self) -> tuple[str, ...]:
        return (
            "network",
            "parameters",
            "last loss",
            self.metric,
            f"updates to {SOLVED:g}",
            "seconds",
        )

    def summary(self) -> Any:
        """Return a table for the terminal."""
        from rich.table import Table

        title = f"{self.task}, delay {self.delay}: a guess has loss {self.chance:.4f}"
        table = Table(title=title)
        for heading in self._headings:
            table.add_column(heading, justify="left" if heading == "network" else "right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """Return the table for the documentation."""
        lines = [
            f"{self.task}, delay {self.delay}, {self.steps} updates, seed {self.seed}; a guess has "
            f"loss {self.chance:.4f}.",
            "",
            f"| {' | '.join(self._headings)} |",
            "|---|" + "---:|" * (len(self._headings) - 1),
            *(f"| {' | '.join(row)} |" for row in self._rows()),
        ]
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture of all curves."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for index, (name, outcome) in enumerate(self.outcomes.items()):
            axes.plot(
                outcome.updates,
                outcome.losses,
                label=name,
                color=PALETTE[index % len(PALETTE)],
                linestyle=LINES[index % len(LINES)],
            )
        axes.axhline(self.chance, color="black", linewidth=1, linestyle=":", label="a guess")
        axes.set_yscale("log")
        axes.set_xlabel("updates")
        squared = self.task == "adding"
        axes.set_ylabel("loss (mean squared error)" if squared else "loss (cross entropy, nats)")
        size = "length" if squared else "delay"
        axes.set_title(
            f"Learning to {VERBS[self.task]}, {size} {self.delay}: "
            "below the dotted line it is memory"
        )
        axes.legend(fontsize="small")
        return {"curves": figure}


@experiments.register("copy")
def run(
    *,
    task: Literal["copy", "denoise", "adding"] = "copy",
    delay: PositiveInt = 200,
    steps: PositiveInt = 1000,
    networks: Sequence[str] = tuple(NETWORKS),
    batch_size: PositiveInt = 64,
    units: PositiveInt = UNITS,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> CopyExperiment:
    """How fast orthogonal, non-normal and plain networks learn to copy.

    Args:
        task: "copy", "denoise" or "adding".
        delay: The delay of the task, or the length of adding.
        steps: Updates of each network.
        networks: Which ones, of `NETWORKS`.
        batch_size: Sequences per update.
        units: Hidden units of each network.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Called with a network's name when it is done, for a progress bar.

    Example:
        >>> result = run(delay=50, steps=200, networks=("rnn-orth", "lstm"))

    Reference:
        G. Kerg and others. Non-normal recurrent neural network (nnRNN): learning long time
        dependencies while improving expressivity with transient dynamics. NeurIPS, 2019.
    """
    from undamped._base.registry import tasks
    from undamped.lab.training import fit

    size = {"length" if task == "adding" else "delay": delay}
    outcomes = {}
    for name in networks:
        if name not in NETWORKS:
            raise unknown_name("network of this experiment", name, list(NETWORKS))
        chosen = NETWORKS[name]
        own = {k: units if v == "units" else v for k, v in chosen.get("model", {}).items()}
        finished = fit(
            name,
            task,
            model_options={"hidden_size": units, **own},
            task_options=size,
            train={
                "optimizer": "rmsprop",
                "steps": steps,
                "batch_size": batch_size,
                "clip": 10.0,
                "validate_every": max(1, steps // 40),
                **chosen["train"],
            },
            seed=seed,
            out=out,
            progress=False,
        )
        outcomes[name] = _outcome(finished)
        if tick is not None:
            tick(name)
    built = tasks.build(task, **size)
    return CopyExperiment(task, delay, steps, seed, built.chance.loss, built.metric, outcomes)


def _outcome(finished: Any) -> Outcome:
    rows = [row for row in finished.metrics() if "valid_loss" in row]
    result, settings = finished.result, finished.settings
    metric = next(value for name, value in result["test"].items() if name != "loss")
    return Outcome(
        updates=[int(row["step"]) for row in rows],
        losses=[row["valid_loss"] for row in rows],
        metric=metric,
        seconds=result["seconds"],
        parameters=settings["model"]["parameters"],
        options={key: settings[key] for key in ("model", "train")},
    )
