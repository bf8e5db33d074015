"""Relations that are not symmetric, and rules that compete: sections 7.2 and 7.3 of the thesis.

undamped reproduce comparison --out pictures/
"""

from __future__ import annotations

from collections.abc import Sequence

from undamped._base.options import PositiveInt, unknown_name
from undamped._base.registry import experiments
from undamped.lab.papers.relational.contestants import chosen
from undamped.lab.papers.relational.grid import Case, Grid, Tick, play

CASES = {
    case.group: case
    for case in (
        Case("comparison", "", "comparison"),
        Case("transitive comparison", "", "comparison", {"transitive": True}),
        Case("same-different", "", "same-different"),
        Case("rmts", "", "rmts"),
        Case("distribution-of-n", "", "distribution-of-n"),
        Case("identity-rules", "", "identity-rules"),
    )
}
CONTESTANTS = (
    "CoRelNet",
    "CoRelNet+asymmetric",
    "ESBN",
    "ESBN+asymmetric",
    "CoRelNet-diff",
    "CoRelNet-mix",
)


@experiments.register("comparison")
def run(
    *,
    tasks: Sequence[str] = tuple(name.replace(" ", "-") for name in CASES),
    contestants: Sequence[str] = CONTESTANTS,
    steps: PositiveInt = 500,
    seeds: PositiveInt = 2,
    full: bool = False,
    out: str = "runs",
    tick: Tick | None = None,
) -> Grid:
    """Say which of two is larger, with similarities, differences, and both in competition.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        tasks: Which ones: comparison, transitive-comparison, same-different, rmts,
            distribution-of-n, identity-rules.
        contestants: Which ones: CoRelNet, CoRelNet+asymmetric, ESBN, ESBN+asymmetric,
            CoRelNet-diff, CoRelNet-mix, and those of `undamped reproduce relations`.
        steps: Updates of each; the thesis has 5,000.
        seeds: Trainings of each; the thesis has 10.
        full: The budget of the thesis: 5,000 updates, 10 seeds. A day on two cores.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(tasks=("comparison",), contestants=("CoRelNet", "CoRelNet-diff"))

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, figures
        7.2 and 7.3, which print no numbers. Thesis, Université de Montréal, 2022.
    """
    if full:
        steps, seeds = 5000, 10
    known = {name.replace(" ", "-"): case for name, case in CASES.items()}
    for name in tasks:
        if name not in known:
            raise unknown_name("task of this experiment", name, list(known))
    train = {"steps": steps, "validate_every": max(1, steps // 10)}
    scores, chances = play(
        [known[name] for name in tasks],
        chosen(contestants),
        seeds=seeds,
        train=train,
        out=out,
        tick=tick,
    )
    title = (
        f"Right with objects that training never saw (%), after {steps:,} updates; mean and "
        f"deviation of {seeds} seeds."
    )
    settings = {"tasks": list(tasks), "steps": steps, "seeds": seeds}
    return Grid("comparison", title, scores, chances, {}, settings)
