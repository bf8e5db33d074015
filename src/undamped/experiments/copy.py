"""How fast orthogonal, non-normal and plain networks learn to copy: figure 2 and table B.2.

The thesis trains expRNN, nnRNN, RNN-orth, EURNN, LSTM and RNN on the copy task with equal numbers
of units; here scoRNN, uRNN and oRNN stand beside them, and the same networks can be sent to the
denoise and adding tasks. Settings are the thesis's (table A.1) where it has some.

    python -m undamped.experiments.copy copy --delay 200 --steps 1000
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, help=__doc__)

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
        "model": {"nonlinearity": "modrelu"},
        "train": {"learning_rate": 1e-3, "constrained_learning_rate": 1e-4},
    },
    "rnn-orth": {
        "model": {"initialisation": "random"},
        "train": {"learning_rate": 2e-4},
    },
    "lstm": {"train": {"learning_rate": 5e-4}},
    "rnn": {"train": {"learning_rate": 1e-3, "beta2": 0.9}},
}
"""Model and training options of each network; the optimiser is RMSprop throughout."""


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
        from undamped.analysis.figures import add_line, new_figure

        figure = new_figure(
            f"Learning to {self.task}, delay {self.delay}",
            "updates",
            "loss (cross entropy)" if self.task != "adding" else "loss (mean squared error)",
            f"The dashed line is a guess ({self.chance:.3f}); below it something is remembered.",
            log_y=True,
        )
        for index, (name, outcome) in enumerate(self.outcomes.items()):
            add_line(figure, outcome.updates, outcome.losses, name, index)
        figure.add_hline(y=self.chance, line_dash="dash", line_color="black")
        return {"curves": figure}


def run(
    *,
    task: str = "copy",
    delay: int = 200,
    steps: int = 1000,
    networks: tuple[str, ...] = tuple(NETWORKS),
    batch_size: int = 64,
    units: int = UNITS,
    seed: int = 0,
    out: str | Path = "runs",
    tick: Callable[[str], None] | None = None,
) -> CopyExperiment:
    """Train all networks, one after the other.

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
    """
    import undamped.tasks  # noqa: F401 (enters the tasks)
    from undamped.registry import tasks
    from undamped.training import fit

    size = {"length" if task == "adding" else "delay": delay}
    outcomes = {}
    for name in networks:
        chosen = NETWORKS[name]
        finished = fit(
            name,
            task,
            model_options={"hidden_size": units, **chosen.get("model", {})},
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


@app.command()
def main(
    task: Annotated[str, typer.Argument(help="copy, denoise or adding.")] = "copy",
    delay: Annotated[int, typer.Option(help="Delay of the task.")] = 200,
    steps: Annotated[int, typer.Option(help="Updates of each network.")] = 1000,
    networks: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(NETWORKS),
    batch: Annotated[int, typer.Option(help="Sequences per update.")] = 64,
    units: Annotated[int, typer.Option(help="Hidden units.")] = UNITS,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for runs, numbers and picture.")] = Path("runs"),
) -> None:
    """Train, print the table, and write numbers and picture."""
    from rich.console import Console

    from undamped.training.files import write_json, write_text

    console = Console()
    found = run(
        task=task,
        delay=delay,
        steps=steps,
        networks=tuple(networks.split(",")),
        batch_size=batch,
        units=units,
        seed=seed,
        out=out,
        tick=console.print,
    )
    console.print(found.summary())
    out.mkdir(parents=True, exist_ok=True)
    name, figure = f"{task}-{delay}", found.figures()["curves"]
    write_json(out / f"{name}.json", found.to_dict())
    write_text(out / f"{name}.html", figure.to_html(include_plotlyjs=True))


if __name__ == "__main__":
    app()
