"""Rules with objects that were never seen: figures 5.3, 5.4 and 5.5 of the thesis as one grid.

undamped reproduce relations --out pictures/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undamped._base.options import PositiveInt, unknown_name
from undamped._base.registry import experiments, tasks
from undamped.lab.papers.relational.contestants import KNOWN, chosen
from undamped.lab.papers.relational.grid import Case, Grid, Tick, play

BASIC = ("same-different", "rmts", "distribution-of-n", "identity-rules")
"""Tasks whose test has the rules of training; they are played with several holdouts."""
NEW_RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "same-different-6": ("same-different-6", {}),
    "rmts-3": ("rmts-3", {}),
    "identity-rules-4": ("identity-rules-4", {}),
    "identity-rules-4-missing": ("identity-rules-4", {"variant": "missing"}),
    "identity-rules-4-flipped": ("identity-rules-4", {"variant": "flipped"}),
    "identity-rules-4-flipped-missing": ("identity-rules-4", {"variant": "flipped-missing"}),
    "distribution-of-10": ("distribution-of-n", {"n": 10}),
    "distribution-of-10-restricted": ("distribution-of-n", {"n": 10, "permutations": "restricted"}),
}
"""Tasks that are played with as many objects held out as can be."""
USUAL = (*BASIC, "rmts-3", "identity-rules-4")
"""What fits into an hour with everybody; ESBN and LSTM take nine tenths of it."""
MOST = -1
"""The holdout that leaves training as few objects as it can do with."""
FULL = (0, 50, 85, 95, MOST)


@experiments.register("relations")
def run(
    *,
    tasks: Sequence[str] = USUAL,
    holdouts: Sequence[int] = (MOST,),
    contestants: Sequence[str] = ("CoRelNet", "CoRelNet+frozen", "ESBN", "Transformer", "LSTM"),
    steps: PositiveInt = 500,
    seeds: PositiveInt = 2,
    full: bool = False,
    out: str = "runs",
    tick: Tick | None = None,
) -> Grid:
    """Learn a rule from a few objects, and follow it with objects that were never seen.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        tasks: Which ones: same-different, rmts, distribution-of-n, identity-rules,
            same-different-6, rmts-3, identity-rules-4 (-missing, -flipped, -flipped-missing),
            distribution-of-10 (-restricted).
        holdouts: How many of 100 objects are kept for the test of the first four; −1 for as many
            as can be, which is what the others have.
        contestants: Which ones: CoRelNet, CoRelNet-T, ESBN, PrediNet, Transformer, LSTM, RN, NTM,
            MNM, variants such as CoRelNet+sensory, CoRelNet+asymmetric and CoRelNet+frozen, or
            names of recurrent networks.
        steps: Updates of each; the thesis has 5,000.
        seeds: Trainings of each; the thesis has 10.
        full: The budget of the thesis: all of its tasks, holdouts and contestants, 5,000 updates,
            10 seeds. Days on two cores.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(tasks=("rmts",), contestants=("CoRelNet", "LSTM"), steps=500)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        figures 3, 4 and 5. They print no numbers.
    """
    if full:
        tasks, holdouts, steps, seeds = (*BASIC, *NEW_RULES), FULL, 5000, 10
        contestants = tuple(name.replace(", ", "+") for name in KNOWN)
    players, cases = chosen(contestants), _cases(tasks, holdouts)
    train = {"steps": steps, "validate_every": max(1, steps // 10)}
    scores, chances = play(cases, players, seeds=seeds, train=train, out=out, tick=tick)
    title = (
        f"Right with objects that training never saw (%), after {steps:,} updates; mean and "
        f"deviation of {seeds} seeds."
    )
    settings = {"tasks": list(tasks), "holdouts": list(holdouts), "steps": steps, "seeds": seeds}
    return Grid("relations", title, scores, chances, {}, settings)


def _cases(names: Sequence[str], holdouts: Sequence[int]) -> list[Case]:
    cases = []
    for name in names:
        if name in BASIC:
            most = tasks.build(name).holdout
            wanted = dict.fromkeys(most if m == MOST or m > most else m for m in holdouts)
            cases += [Case(name, f"m = {m}", name, {"holdout": m}) for m in wanted]
        elif name in NEW_RULES:
            task, options = NEW_RULES[name]
            most = tasks.build(task, **options).holdout
            cases.append(Case(name, f"m = {most}", task, options))
        else:
            raise unknown_name("task of this experiment", name, [*BASIC, *NEW_RULES])
    return cases
