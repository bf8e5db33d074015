"""SSINN on the Hénon–Heiles system: the identified equation, term by term.

undamped reproduce ssinn --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from undamped._base.options import NonNegativeFloat, PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, train_model
from undamped.lab.papers.runs import RunOptions, experiment, unique
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report
from undamped.models.physics.ssinn import SSINN

TRUE = {"px²": 0.5, "py²": 0.5, "x²": 0.5, "y²": 0.5, "x² y": 1.0, "y³": -1 / 3}


@dataclass(frozen=True)
class Equation:
    """The equation that was identified with one seed.

    Args:
        seed: The seed.
        terms: Terms and their coefficients.
        library: Number of candidate terms.
        stray: Terms that are superfluous or missing.
        error: The largest error of a coefficient.
        seconds: Duration of training.
    """

    seed: int
    terms: dict[str, float]
    library: int
    stray: list[str]
    error: float
    seconds: float


@experiment("ssinn")
def run(
    *,
    seeds: Sequence[int] = (0, 1, 2),
    pairs: PositiveInt = 5000,
    steps: PositiveInt = 1500,
    noise: NonNegativeFloat = 0.0,
    **options: Unpack[RunOptions],
) -> Report:
    """SSINN on Hénon–Heiles: the identified equation beside the true one.

    Args:
        seeds: Seeds of the weights and of the data.
        pairs: Pairs of states 0.1 apart.
        steps: Updates.
        noise: Standard deviation of the noise on states.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(seeds=(0,))

    Reference:
        D. M. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """
    equations: list[Equation] = []
    for seed in seeds:
        trained = train_model(
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
            out=options["out"],
        )
        assert isinstance(trained.model, SSINN)
        field, terms = trained.model.library, trained.model.terms()
        library = len(field.of_momenta) + len(field.of_positions)
        error = max(abs(terms.get(term, 0.0) - true) for term, true in TRUE.items())
        stray = sorted(set(terms) ^ set(TRUE))
        equations.append(Equation(seed, terms, library, stray, error, trained.seconds))
        options["progress"](f"seed {seed}")
    stray_terms = float(max(len(equation.stray) for equation in equations))
    largest_error = max(equation.error for equation in equations)
    goals = [
        Goal("terms too many or missing, worst seed", stray_terms, 0.0),
        Goal("largest error of a coefficient, worst seed", largest_error, 1e-2),
    ]
    terms = unique([*TRUE, *(term for equation in equations for term in equation.terms)])
    columns = [TRUE, *(equation.terms for equation in equations)]
    rows = [
        (term, *(f"{column[term]:.4f}" if term in column else "0" for column in columns))
        for term in terms
    ]
    first = equations[0]
    note = (
        f"Selected among {first.library} terms, from {pairs:,} pairs of states 0.1 apart; "
        f"{first.seconds:.0f} s."
    )
    return goal_report(
        equations,
        ("term", "true", *(f"seed {equation.seed}" for equation in equations)),
        rows,
        goals,
        {"ssinn_coefficients": lambda: _figure(terms, equations)},
        note,
        numbers={"true": TRUE},
    )


def _figure(terms: Sequence[str], equations: Sequence[Equation]) -> Any:
    figure, (axes,) = panels(6, 3)
    true = [TRUE.get(term, 0.0) for term in terms]
    axes.bar(range(len(terms)), true, color="#D0D0D0", label="true")
    for index, equation in enumerate(equations):
        values = [equation.terms.get(term, 0.0) for term in terms]
        axes.plot(values, "o", color=colour(index), label=f"seed {equation.seed}")
    axes.set_xticks(range(len(terms)), terms)
    label(axes, "", "coefficient")
    return figure
