"""Networks that have to say symbols again: training, testing at other delays, tables, curves.

`transfer-copy`, `denoise` and `copy-long` are this with other tasks and delays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped._base.registry import tasks
from undamped.lab.papers.contenders import UNITS, Contender
from undamped.lab.papers.kept_runs import kept_fit
from undamped.lab.training import Run

MOST_NUMBERS = 40_000
"""Steps times sequences of a batch in a test: networks that remember all have T²/2 weights."""
FEWEST_BETWEEN = 25
"""Updates between two validations."""
Printed = Mapping[str, Mapping[int, float | str]]


@dataclass(frozen=True)
class Budget:
    """How long and in which portions every network is trained.

    Args:
        steps: Updates at most.
        batch_size: Sequences per update, for networks that have no number of their own.
        goal: The share of symbols right in validation at which training ends.
        units: Hidden units.
        seed: Where all random numbers come from.
        tests: Sequences of every test.
    """

    steps: int
    batch_size: int
    goal: float
    units: int = UNITS
    seed: int = 0
    tests: int = 200


@dataclass(frozen=True)
class Trained:
    """One network after one training.

    Args:
        network: What it is called here.
        delay: The delay it was trained at.
        accuracy: The share of symbols right in tests, by delay.
        updates: How many it was trained for.
        batch_size: Sequences of each.
        cpu_seconds: How long that took, of all threads.
        seconds: The same by the clock on the wall, other work included.
        parameters: How many it has.
        curve: Updates and validation accuracies.
        run: Where its run is.
    """

    network: str
    delay: int
    accuracy: dict[int, float]
    updates: int
    batch_size: int
    cpu_seconds: float
    seconds: float
    parameters: int
    curve: tuple[list[int], list[float]]
    run: Path


def train_and_test(
    task: str,
    name: str,
    contender: Contender,
    delay: int,
    test_delays: Sequence[int],
    budget: Budget,
    *,
    out: str,
    tick: Callable[[str], None] | None = None,
) -> Trained:
    """Train a network at one delay and test it at others.

    Args:
        task: "copy" or "denoise".
        name: What the network is called here.
        contender: The network and its settings.
        delay: The delay of training.
        test_delays: Those of the tests.
        budget: How long it is trained.
        out: The folder for the runs.
        tick: Told how it goes.
    """

    def tell(line: str) -> None:
        if tick is not None:
            tick(f"{name} at {delay}: {line}")

    run = kept_fit(
        contender.model,
        task,
        model_options={"hidden_size": budget.units, **contender.options},
        task_options={"delay": delay},
        train={
            "steps": budget.steps,
            "batch_size": budget.batch_size,
            "clip": 1.0,
            "goal": budget.goal,
            # A validation costs as much as some ten updates.
            "validate_every": max(min(budget.steps, FEWEST_BETWEEN), budget.steps // 50),
            **contender.train,
        },
        seed=budget.seed,
        out=out,
        tell=tell,
    )
    result, model = run.result, run.model()
    assert result is not None
    accuracy = {}
    for other in test_delays:
        tell(f"test at {other}")
        accuracy[other] = recall_accuracy(model, task, other, budget.tests)
    rows = [row for row in run.metrics() if "valid_accuracy" in row]
    return Trained(
        network=name,
        delay=delay,
        accuracy=accuracy,
        updates=result["steps"],
        batch_size=run.settings["train"]["batch_size"],
        cpu_seconds=result["cpu_seconds"],
        seconds=result["seconds"],
        parameters=run.settings["model"]["parameters"],
        curve=([int(row["step"]) for row in rows], [row["valid_accuracy"] for row in rows]),
        run=run.path,
    )


def recall_accuracy(model: Any, task: str, delay: int, sequences: int) -> float:
    """Return the share of symbols that a model says right in new sequences of some delay.

    Args:
        model: A trained model.
        task: "copy" or "denoise".
        delay: The delay.
        sequences: How many.
    """
    import torch

    built: Any = tasks.build(task, delay=delay, seed=0)
    size = max(1, min(sequences, MOST_NUMBERS // built.length))
    model.eval()
    right, said = 0.0, 0
    with torch.no_grad():
        for number in range(-(-sequences // size)):
            batch = built.batch("test", number, min(size, sequences - number * size))
            found, count = built.score(model.run(batch)[0], batch)
            right, said = right + float(found), said + count
    return right / said


@dataclass(frozen=True)
class RecallExperiment:
    """All networks, what they were trained on and what is right in tests.

    Args:
        task: "copy" or "denoise".
        title: What was done, in a sentence.
        delays: The columns of the table.
        trained: One entry for every training; where a network has several, each column is that
            of its own delay.
        printed: The numbers of the thesis, in percent, by network and delay.
        budget: How long every network was trained.
        more: Further results, each with `lines`, `figures` and `to_dict`, by name.
    """

    task: str
    title: str
    delays: tuple[int, ...]
    trained: tuple[Trained, ...]
    printed: Printed
    budget: Budget
    more: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "task": self.task,
            "budget": vars(self.budget),
            "trained": [{**vars(one), "run": str(one.run)} for one in self.trained],
            "printed_percent": {
                n: {str(d): v for d, v in p.items()} for n, p in self.printed.items()
            },
            **{name: more.to_dict() for name, more in self.more.items()},
        }

    def accuracy(self, network: str, delay: int) -> float | None:
        """Return the share of symbols right: of the training at that delay if there is one."""
        own = [one for one in self.trained if one.network == network and delay in one.accuracy]
        best = next((one for one in own if one.delay == delay), own[0] if own else None)
        return None if best is None else best.accuracy[delay]

    def markdown(self) -> str:
        """Return the table for the documentation: ours, and in brackets the thesis's."""
        heads = " | ".join(f"T = {delay}" for delay in self.delays)
        lines = [
            f"{self.title} Symbols right in {self.budget.tests} new sequences, in percent; in "
            f"brackets what the thesis prints. {self.budget.units} units, seed {self.budget.seed}; "
            "a guess has 12.5.",
            "",
            f"| network | parameters | {heads} | updates | CPU minutes |",
            "|---|---:|" + "---:|" * (len(self.delays) + 2),
        ]
        for name in dict.fromkeys(one.network for one in self.trained):
            own = [one for one in self.trained if one.network == name]
            cells = [self._cell(name, delay) for delay in self.delays]
            updates = " + ".join(f"{one.updates:,} of {one.batch_size}" for one in own)
            minutes = " + ".join(f"{one.cpu_seconds / 60:.1f}" for one in own)
            lines.append(
                f"| {name} | {own[0].parameters:,} | {' | '.join(cells)} | {updates} | {minutes} |"
            )
        lines += [line for more in self.more.values() for line in ("", *more.lines())]
        return "\n".join(lines) + "\n"

    def _cell(self, name: str, delay: int) -> str:
        found, there = self.accuracy(name, delay), self.printed.get(name, {}).get(delay)
        ours = "" if found is None else f"{100 * found:.1f}"
        return ours if there is None else f"{ours} ({there})"

    def figures(self) -> dict[str, Any]:
        """Return the picture of all curves, and others."""
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for index, one in enumerate(self.trained):
            several = len({other.delay for other in self.trained}) > 1
            label = f"{one.network}, T = {one.delay}" if several else one.network
            updates, accuracies = one.curve
            axes.plot(updates, [100 * a for a in accuracies], label=label, **line_of(index))
        axes.axhline(12.5, color="black", linewidth=1, linestyle=":", label="a guess")
        axes.set_xlabel("updates")
        axes.set_ylabel("symbols right in validation (%)")
        axes.set_title(f"{self.task}: a curve that ends at the top has learnt it", fontsize=10)
        axes.legend(fontsize="small")
        figures = {f"{self.task}-curves": figure}
        for more in self.more.values():
            figures |= more.figures()
        return figures


def model_of(trained: Trained) -> Any:
    """Return the trained model."""
    return Run.open(trained.run).model()
