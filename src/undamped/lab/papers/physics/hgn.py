"""HGN on videos of a pendulum: reconstruction of observed frames, and prediction of later ones.

At a size that trains in minutes: 16 × 16 pixels, two latent positions, an energy T(p) + V(q). The
paper's model has 32 × 32 pixels, convolutional energies and 500,000 updates of 128 videos, and its
numbers are in figures only, so that none of them is repeated here.

    undamped reproduce hgn --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch

from undamped._base.options import PositiveInt
from undamped.lab.instruments.films import Films, films
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific
from undamped.lab.papers.runs import RunOptions, experiment, fit_once
from undamped.lab.report.charts import BLACK_LINE, colour, label, panels
from undamped.lab.report.table import Report

FRAMES = 10
"""Frames of a video in the figure."""


@dataclass(frozen=True)
class SeedScores:
    """One seed.

    Args:
        seed: The seed.
        scores: Scores of every test split, by its name.
        energy_correlation: |correlation| of the learned and the true energies of the test videos.
        seconds: Duration of training.
        errors: Mean squared error of every frame.
        baseline: Mean squared error of the mean image.
    """

    seed: int
    scores: dict[str, dict[str, float]]
    energy_correlation: float
    seconds: float
    errors: list[float]
    baseline: float

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for every test split."""
        return [
            (
                f"seed {self.seed}, {split}",
                scientific(scores["mse"]),
                scientific(self.baseline),
                f"{scores['angle_error']:.2f}",
                f"{scores['valid_time']:.2f}",
                f"{self.energy_correlation:.2f}",
                f"{self.seconds:.0f}",
            )
            for split, scores in self.scores.items()
        ]


@experiment("hgn")
def run(
    *,
    seeds: tuple[int, ...] = (0,),
    steps: PositiveInt = 6000,
    films_seen: PositiveInt = 1000,
    latent_size: PositiveInt = 2,
    **options: Unpack[RunOptions],
) -> Report:
    """HGN on videos of a pendulum: reconstruction and prediction.

    Args:
        seeds: Seeds of the weights.
        steps: Updates of 32 videos each.
        films_seen: Number of training videos.
        latent_size: Latent positions.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(steps=500)

    Reference:
        P. Toth and others. Hamiltonian generative networks. ICLR, 2020.
    """
    from undamped.lab.tasks.physics.pendulum_pictures import PendulumPictures

    records: list[SeedScores] = []
    videos: list[Films] = []
    goals, settings = [], {}
    for seed in seeds:
        trained = fit_once(
            "hgn",
            "pendulum-pictures",
            model_options={"latent_size": latent_size},
            task_options={"films": films_seen},
            train={"steps": steps, "validate_every": max(1, steps // 20)},
            seed=seed,
            out=options["out"],
        )
        task, result = trained.task(), trained.result
        assert isinstance(task, PendulumPictures) and result is not None
        model = trained.model()
        scores = {split: result[split] for split in task.test_tasks()}
        correlation = _energy_correlation(model, task)
        video = films(model, task, name="hgn")
        errors = video.errors.tolist()
        records.append(
            SeedScores(seed, scores, correlation, result["seconds"], errors, video.chance)
        )
        reconstruction = float(video.errors[: video.num_observed].mean() / video.chance)
        angle = scores["test"]["angle_error"]
        goals += [
            Goal(f"seed {seed}: error of observed frames over the baseline's", reconstruction, 0.1),
            Goal(f"seed {seed}: mean error of the angle, radians", angle, 0.3),
        ]
        videos.append(video)
        settings = {"size": task.size, "observed": task.length, "step": task.step}
        options["progress"](f"seed {seed}")
    header = ("", "error", "baseline", "angle off by", "right until", "energy correlation", "s")
    plots = {
        "hgn_film": lambda: _frames(videos[0]),
        "hgn_errors": lambda: _errors(records, videos[0].times, settings),
    }
    rows = [row for record in records for row in record.rows()]
    return goal_report(records, header, rows, goals, plots, settings=settings)


@torch.no_grad()
def _energy_correlation(model: Any, task: Any) -> float:
    """Return |correlation| of learned and true energies of the test videos."""
    batch = task.batch("test", 0, task.sequences("test"))
    learned = model.energy(model.encode(batch.inputs)[0]).double()
    true = task.system.energy(task.states("test")[0])
    return float(torch.corrcoef(torch.stack((learned, true)))[0, 1].abs())


def _frames(video: Films) -> Any:
    """Return true frames above predicted ones."""
    indices = np.unique(np.linspace(0, len(video.times) - 1, FRAMES).round().astype(int))
    figure, all_axes = panels(9, 2.2, columns=len(indices), rows=2)
    for number, index in enumerate(indices):
        for axes, frames in zip(
            (all_axes[number], all_axes[len(indices) + number]),
            (video.true, video.predicted),
            strict=True,
        ):
            axes.imshow(frames[index], cmap="cividis", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        all_axes[number].set_title(f"{video.times[index]:.2f}", fontsize=8)
    return figure


def _errors(records: Sequence[SeedScores], times: Any, settings: Mapping[str, Any]) -> Any:
    figure, (axes,) = panels(6, 3)
    for index, record in enumerate(records):
        ratios = np.asarray(record.errors) / record.baseline
        axes.plot(times, ratios, color=colour(index), label=f"seed {record.seed}")
    axes.axhline(1, **BLACK_LINE)
    axes.axvline(settings["observed"] * settings["step"], color="grey", linewidth=1)
    label(axes, "time; training ends at the grey line", "error over the baseline's", log="y")
    return figure
