"""A training step of CoRelNet with each distinct image encoded once, compared with all images.

A trial repeats few objects: a batch of distribution-of-three with five training objects has 864
images, of which five are different. The plain version is straightforward PyTorch: the encoder on
the images of one step after the other, the variance of torch, a mask for the triangle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.registry import tasks
from undamped.lab.benchmarks.timing import benchmark, interleaved, milliseconds, timing_table
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, silent
from undamped.models.for_task import model_for

SIZE, QUICK = 96, 8
BASELINE = "corelnet"
EVERY, PLAIN = "corelnet, every picture encoded", "CoRelNet in plain PyTorch"
TARGET = 5.0
"""Smallest ratio of the time with every image encoded."""


class PlainCoRelNet(nn.Module):
    """CoRelNet in plain PyTorch, image by image.

    Args:
        length: Images of a trial.
        classes: Number of answers.
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
        z = torch.stack([self.encoder(images) for images in batch.expanded().inputs], 1)
        z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, keepdim=True) + 1e-8)
        z = self.gamma * z + self.beta
        later = torch.ones(z.shape[1], z.shape[1], dtype=torch.bool).triu(1)
        relations = torch.softmax((z @ z.mT).masked_fill(later, -torch.inf), -1)
        return self.decoder(relations[:, ~later])


@benchmark("relations")
def run(*, rounds: int = 7, quick: bool = False, progress: Progress = silent) -> Report:
    """A training step of CoRelNet at T = 9, with each distinct image encoded once.

    Args:
        rounds: How often each candidate is timed.
        quick: Few trials.
        progress: Called with the name of a candidate after every run.

    Example:
        >>> result = run(rounds=3, quick=True)
        >>> result.numbers["every_over_once"]
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
    timings = interleaved(steps, rounds=rounds, warmup=3, progress=progress)
    ratio = timings[EVERY].over(timings[BASELINE])
    settings = {
        "trials": batch.inputs.shape[1],
        "images": batch.inputs.numel(),
        "distinct_images": len(torch.unique(batch.inputs)),
    }
    title = (
        f"A training step on {settings['trials']} trials, {settings['images']} images of which "
        f"{settings['distinct_images']} differ; {torch.get_num_threads()} threads."
    )
    verdict = "target met" if ratio >= TARGET else "target missed"
    note = f"Every image encoded: {ratio:.1f} times ({verdict}, ≥ {TARGET:g})."
    bars = {"": milliseconds(timings)}
    return Report(
        [],
        [timing_table(timings, BASELINE, title, note)],
        {"steps": lambda: bar_chart(bars, "ms per training step", title)},
        {"timings": timings, "every_over_once": ratio},
        settings,
    )


def _step(model: nn.Module, batch: Batch, task: Any) -> Callable[[], None]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return partial(_train, model, batch, task, torch.optim.Adam(parameters, lr=5e-4))


def _train(model: nn.Module, batch: Batch, task: Any, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    task.loss(model(batch), batch).backward()
    optimiser.step()
