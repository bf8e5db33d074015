"""SSINN on Hénon and Heiles' star: is the equation found, term by term?

undamped reproduce ssinn --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from undamped._base.options import NonNegativeFloat, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.physics.goals import Goal, table
from undamped.lab.papers.physics.trained import trained
from undamped.models.physics.ssinn import SSINN

TRUE = {"px²": 0.5, "py²": 0.5, "x²": 0.5, "y²": 0.5, "x² y": 1.0, "y³": -1 / 3}


@dataclass(frozen=True)
class Found:
    """What was found from one seed.

    Args:
        seed: The seed.
        terms: Terms and their coefficients.
        library: How many terms there were to choose from.
        seconds: Of training.
    """

    seed: int
    terms: dict[str, float]
    library: int
    seconds: float

    @property
    def stray(self) -> list[str]:
        """Terms that are too many, or missing."""
        return sorted(set(self.terms) ^ set(TRUE))

    @property
    def error(self) -> float:
        """The largest error of a coefficient."""
        return max(abs(self.terms.get(term, 0.0) - true) for term, true in TRUE.items())


@dataclass(frozen=True)
class SSINNExperiment:
    """All seeds."""

    settings: dict[str, Any]
    found: tuple[Found, ...]

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached."""
        stray = max(len(one.stray) for one in self.found)
        error = max(one.error for one in self.found)
        return [
            Goal("terms too many or missing, worst seed", float(stray), 0.0),
            Goal("largest error of a coefficient, worst seed", error, 1e-2),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        rows = [{**vars(one), "stray": one.stray, "error": one.error} for one in self.found]
        return {
            "settings": self.settings,
            "true": TRUE,
            "found": rows,
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return the coefficients beside the true ones."""
        seen = list(dict.fromkeys([*TRUE, *(t for one in self.found for t in one.terms)]))
        rows = []
        for term in seen:
            true = f"{TRUE[term]:.4f}" if term in TRUE else "0"
            each = [f"{one.terms[term]:.4f}" if term in one.terms else "0" for one in self.found]
            rows.append((term, true, *each))
        heads = ("term", "true", *(f"seed {one.seed}" for one in self.found))
        first = self.found[0]
        text = (
            f"Chosen among {first.library} terms, from {self.settings['pairs']:,} pairs of states "
            f"0.1 apart; {first.seconds:.0f} s."
        )
        return "\n\n".join([table(heads, rows), text, "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: found coefficients against true ones."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(6, 3), layout="constrained")
        axes = figure.add_subplot()
        seen = list(dict.fromkeys([*TRUE, *(t for one in self.found for t in one.terms)]))
        places = range(len(seen))
        true = [TRUE.get(term, 0.0) for term in seen]
        axes.bar(places, true, color="#D0D0D0", label="true")
        for k, one in enumerate(self.found):
            values = [one.terms.get(term, 0.0) for term in seen]
            axes.plot(places, values, "o", color=PALETTE[k], label=f"seed {one.seed}")
        axes.set_xticks(list(places), seen)
        axes.set_ylabel("coefficient")
        axes.legend(fontsize="x-small")
        return {"ssinn_coefficients": figure}


@experiments.register("ssinn")
def run(
    *,
    seeds: Sequence[int] = (0, 1, 2),
    pairs: PositiveInt = 5000,
    steps: PositiveInt = 1500,
    noise: NonNegativeFloat = 0.0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> SSINNExperiment:
    """SSINN on Hénon–Heiles: the equation found, beside the true one.

    Args:
        seeds: Seeds of the weights and of the data.
        pairs: Pairs of states 0.1 apart.
        steps: Updates.
        noise: Standard deviation of the noise on states.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(seeds=(0,))

    Reference:
        D. M. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """
    found = []
    for seed in seeds:
        one = trained(
            "ssinn",
            "henon-heiles",
            model_options={"step_size": 0.05},
            task_options={
                "trajectories": pairs,
                "readings": 2,
                "span": 0.1,
                "window": 1,
                "horizon": 20.0,
                "noise": noise,
                "data_seed": seed,
            },
            train={"steps": steps, "batch_size": 256},
            seed=seed,
            out=out,
        )
        assert isinstance(one.model, SSINN)
        field = one.model.library
        library = len(field.of_momenta) + len(field.of_positions)
        found.append(Found(seed, one.model.terms(), library, one.seconds))
        if tick is not None:
            tick(f"seed {seed}")
    settings = {"seeds": list(seeds), "pairs": pairs, "steps": steps, "noise": noise}
    return SSINNExperiment(settings, tuple(found))
