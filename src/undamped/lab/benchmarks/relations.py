"""A training step of CoRelNet with each distinct picture encoded once, beside all of them.

A trial shows few objects again and again: a batch of distribution-of-three with five objects in
training has 864 pictures, and five that differ. The plain version is what one would write: the
encoder on the pictures of one step after the other, torch's own variance, a mask for the triangle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.registry import benchmarks, tasks
from undamped.lab.benchmarks.tables import markdown_table, step_bars, terminal_table
from undamped.lab.benchmarks.timing import Timing, interleaved
from undamped.models.for_task import model_for

SIZE, QUICK = 96, 8
BASELINE = "corelnet"
EVERY, PLAIN = "corelnet, every picture encoded", "CoRelNet in plain PyTorch"
HEADER = ("step", "ms", "as a multiple")
WANTED = 5.0
"""How many times as long encoding every picture should take at least."""


class PlainCoRelNet(nn.Module):
    """CoRelNet as one would write it, picture by picture.

    Args:
        length: Pictures of a trial.
        classes: Answers to choose from.
    """

    def __init__(self, length: int, classes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()),
        )
        self.gamma, self.beta = nn.Parameter(torch.ones(128)), nn.Parameter(torch.zeros(128))
        entries = length * (length + 1) // 2
        self.decoder = nn.Sequential(nn.Linear(entries, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, batch: Batch) -> Tensor:
        """Return answers (batch, classes)."""
        z = torch.stack([self.encoder(pictures) for pictures in batch.expanded().inputs], 1)
        z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, keepdim=True) + 1e-8)
        z = self.gamma * z + self.beta
        later = torch.ones(z.shape[1], z.shape[1], dtype=torch.bool).triu(1)
        relations = torch.softmax((z @ z.mT).masked_fill(later, -torch.inf), -1)
        return self.decoder(relations[:, ~later])


@dataclass(frozen=True)
class RelationBenchmark:
    """All measurements of one run.

    Args:
        threads: How many torch had.
        trials: Trials of a batch.
        pictures: Pictures of a batch.
        distinct: How many of them differ.
        timings: Seconds of a training step, by candidate.
    """

    threads: int
    trials: int
    pictures: int
    distinct: int
    timings: dict[str, Timing]

    @property
    def times_every(self) -> float:
        """How many times as long the step takes with every picture encoded."""
        return self.timings[EVERY].over(self.timings[BASELINE])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON."""
        return {
            "threads": self.threads,
            "trials": self.trials,
            "pictures": self.pictures,
            "distinct_pictures": self.distinct,
            "timings": {name: timing.to_dict() for name, timing in self.timings.items()},
            "every_over_once": self.times_every,
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the timings as a table."""
        return [
            (name, f"{1000 * timing.median:.2f}", f"{timing.over(self.timings[BASELINE]):.2f}")
            for name, timing in self.timings.items()
        ]

    @property
    def _about(self) -> str:
        return (
            f"A training step on {self.trials} trials, {self.pictures} pictures of which "
            f"{self.distinct} differ; {self.threads} thread{'s' * (self.threads > 1)}"
        )

    def markdown(self) -> str:
        """Return the table for the documentation."""
        return f"{self._about}.\n\n{markdown_table(HEADER, self.rows())}\n"

    def summary(self) -> Any:
        """Return a table for the terminal."""
        said = "as wanted" if self.times_every >= WANTED else "less than wanted"
        caption = f"every picture encoded: {self.times_every:.1f} times ({said}, ≥ {WANTED:g})"
        return terminal_table(HEADER, self.rows(), self._about, caption)

    def figures(self) -> dict[str, Any]:
        """Return the picture: one bar for each candidate."""
        return {"steps": step_bars(self.timings, self._about)}


@benchmarks.register("relations")
def run(
    *, rounds: int = 7, quick: bool = False, tick: Callable[[str], None] | None = None
) -> RelationBenchmark:
    """A training step of CoRelNet at T = 9, with each distinct picture encoded once.

    Args:
        rounds: How often each candidate is timed.
        quick: Few trials, to see that it works.
        tick: Called with a candidate's name after every run.

    Example:
        >>> result = run(rounds=3, quick=True)
        >>> result.times_every
    """
    task = tasks.build("distribution-of-n", holdout=95)
    batch = task.batch("train", 0, QUICK if quick else SIZE)
    expanded = batch.expanded()
    torch.manual_seed(0)
    shape = task.task_shape
    models = {
        BASELINE: (model_for(shape, "corelnet", {}), batch),
        EVERY: (model_for(shape, "corelnet", {}), expanded),
        PLAIN: (PlainCoRelNet(9, shape.output_size), expanded),
        "corelnet, frozen": (model_for(shape, "corelnet", {"encoder": "frozen"}), batch),
        "esbn": (model_for(shape, "esbn", {}), batch),
        "picture-transformer": (model_for(shape, "picture-transformer", {}), batch),
        "picture-rnn (lstm)": (model_for(shape, "picture-rnn", {}), batch),
    }
    steps = {name: _step(model, data, task) for name, (model, data) in models.items()}
    timings = interleaved(steps, rounds=rounds, warmup=3, tick=tick)
    distinct = len(torch.unique(batch.inputs))
    trials = batch.inputs.shape[1]
    count = batch.inputs.numel()
    return RelationBenchmark(torch.get_num_threads(), trials, count, distinct, timings)


def _step(model: nn.Module, batch: Batch, task: Any) -> Callable[[], None]:
    trained = [p for p in model.parameters() if p.requires_grad]
    return partial(_train, model, batch, task, torch.optim.Adam(trained, lr=5e-4))


def _train(model: nn.Module, batch: Batch, task: Any, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    task.loss(model(batch), batch).backward()
    optimiser.step()
