"""HGN on films of a pendulum: frames that were seen come back, and later ones are seen ahead.

At a size that trains in minutes: 16 × 16 pixels, two positions behind them, an energy T(p) + V(q).
The paper's model has 32 × 32 pixels, convolutional energies, 500,000 updates of 128 films, and its
tables cannot be read here, so that no number of theirs stands beside ours.

    undamped reproduce hgn --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undamped._base.options import PositiveInt
from undamped._base.registry import experiments
from undamped.lab.instruments.films import Films, films
from undamped.lab.papers.physics.goals import Goal, short, table

FRAMES = 10
"""Frames of a film that are drawn."""


@dataclass(frozen=True)
class Outcome:
    """One seed.

    Args:
        seed: The seed.
        scores: Scores of every part of the test, by its name.
        film: A film and errors over time.
        kept: |correlation| of the learned and the true energies of the test films.
        seconds: Of training.
    """

    seed: int
    scores: dict[str, dict[str, float]]
    film: Films
    kept: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        numbers = {name: getattr(self, name) for name in ("seed", "scores", "kept", "seconds")}
        return {**numbers, "errors": self.film.errors.tolist(), "guess": self.film.guess}


@dataclass(frozen=True)
class HGNExperiment:
    """All seeds."""

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def goals(self) -> list[Goal]:
        """What a model of this size is to reach: frames come back, and an angle is seen ahead."""
        found = []
        for one in self.outcomes:
            again = float(one.film.errors[: one.film.seen].mean() / one.film.guess)
            error = one.scores["test"]["angle_error"]
            found.append(Goal(f"seed {one.seed}: error of seen frames over a guess's", again, 0.1))
            found.append(Goal(f"seed {one.seed}: mean error of the angle, radians", error, 0.3))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything but pictures for JSON."""
        return {
            "settings": self.settings,
            "outcomes": [one.to_dict() for one in self.outcomes],
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return a table: every part of the test, seed by seed."""
        rows = []
        for one in self.outcomes:
            for part, scores in one.scores.items():
                rows.append(
                    (f"seed {one.seed}, {part}", short(scores["mse"]), short(one.film.guess),
                     f"{scores['angle_error']:.2f}", f"{scores['valid_time']:.2f}",
                     f"{one.kept:.2f}", f"{one.seconds:.0f}")
                )  # fmt: skip
        heads = ("", "error", "a guess", "angle off by", "right until", "energy alike", "s")
        return "\n\n".join([table(heads, rows), "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return two pictures: a film over its prediction, and errors over time."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        film = self.outcomes[0].film
        strip = Figure(figsize=(9, 2.2), layout="constrained")
        chosen = np.unique(np.linspace(0, len(film.times) - 1, FRAMES).round().astype(int))
        for panel, at in zip(strip.subplots(2, len(chosen)).T, chosen, strict=True):
            for axis, frames in zip(panel, (film.true, film.predicted), strict=True):
                axis.imshow(frames[at], cmap="cividis", vmin=0, vmax=1)
                axis.set_xticks([])
                axis.set_yticks([])
            panel[0].set_title(f"{film.times[at]:.2f}", fontsize=8)
        curve = Figure(figsize=(6, 3), layout="constrained")
        axis = curve.subplots()
        for colour, one in zip(PALETTE, self.outcomes, strict=False):
            share = one.film.errors / one.film.guess
            axis.plot(one.film.times, share, color=colour, label=f"seed {one.seed}")
        axis.axhline(1, color="black", linestyle=":")
        axis.axvline(self.settings["asked"] * self.settings["step"], color="grey", linewidth=1)
        axis.set_yscale("log")
        axis.set_xlabel("time; training goes to the grey line")
        axis.set_ylabel("error over that of a guess")
        axis.legend(fontsize=8)
        return {"hgn_film": strip, "hgn_errors": curve}


@experiments.register("hgn")
def run(
    *,
    seeds: tuple[int, ...] = (0,),
    steps: PositiveInt = 6000,
    films_seen: PositiveInt = 1000,
    latent_size: PositiveInt = 2,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> HGNExperiment:
    """HGN on films of a pendulum: what comes back, and what is seen ahead.

    Args:
        seeds: Seeds of the weights.
        steps: Updates of 32 films each.
        films_seen: Films to learn from.
        latent_size: Positions behind the pictures.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(steps=500)

    Reference:
        P. Toth and others. Hamiltonian generative networks. ICLR, 2020.
    """
    from undamped.lab.tasks.physics.pendulum_pictures import PendulumPictures
    from undamped.lab.training import fit

    outcomes, task = [], None
    for seed in seeds:
        trained = fit(
            "hgn",
            "pendulum-pictures",
            model_options={"latent_size": latent_size},
            task_options={"films": films_seen},
            train={"steps": steps, "validate_every": max(1, steps // 20)},
            seed=seed,
            out=out,
            progress=False,
        )
        task, result = trained.task(), trained.result
        assert isinstance(task, PendulumPictures) and result is not None
        model = trained.model()
        scores = {part: result[part] for part in task.test_parts()}
        kept = _energies_alike(model, task)
        found = films(model, task, name="hgn")
        outcomes.append(Outcome(seed, scores, found, kept, result["seconds"]))
        if tick is not None:
            tick(f"seed {seed}")
    assert task is not None
    settings = {
        "seeds": list(seeds),
        "steps": steps,
        "films": films_seen,
        "latent_size": latent_size,
        "size": task.size,
        "asked": task.asked,
        "step": task.step,
    }
    return HGNExperiment(settings, tuple(outcomes))


def _energies_alike(model: Any, task: Any) -> float:
    """Return |correlation| of learned and true energies of the test films."""
    batch = task.batch("test", 0, task.sequences("test"))
    with torch.no_grad():
        learned = model.energy(model.encode(batch.inputs)[0]).double()
    true = task.system.energy(task.states("test")[0])
    both = torch.stack((learned, true))
    return float(torch.corrcoef(both)[0, 1].abs())
