"""Rules applied to new objects: `relations`, `relational-games` and `comparison`.

Figures 5.3, 5.4 and 5.5, tables 5.1 and C.2, and sections 7.2 and 7.3 of the thesis.

    undamped reproduce relations --out figures/
    undamped reproduce relational-games --out figures/
    undamped reproduce comparison --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Unpack, get_args

from undamped._base.options import Default, PositiveInt
from undamped._base.registry import tasks as task_registry
from undamped.lab.papers.relational.grid import (
    VARIANTS,
    Case,
    GridOptions,
    grid_report,
    train_grid,
    variants,
)
from undamped.lab.papers.runs import check_names, experiment
from undamped.lab.report.table import Report
from undamped.lab.tasks.relations.games.rules import SHAPE_GAMES, Game

BASIC = ("same-different", "rmts", "distribution-of-n", "identity-rules")
"""Tasks whose test has the rules of training; they are tested with several holdouts."""
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
"""Tasks with as many objects held out as possible."""
DEFAULT_TASKS = (*BASIC, "rmts-3", "identity-rules-4")
"""Tasks that take an hour with all models; ESBN and LSTM take nine tenths of it."""
LARGEST = -1
"""The holdout that leaves as few objects for training as the task allows."""
FULL_HOLDOUTS = (0, 50, 85, 95, LARGEST)
GAMES: tuple[Game, ...] = get_args(Game)
_TABLE = {
    "CoRelNet": "94.7/90.4 96.6/93.1 96.2/88.7 92.2/83.6 97.7/94.8 47.2 99.2",
    "CoRelNet-T": "98.7/98.4 91.9/87.0 91.6/79.3 91.7/85.4 95.4/90.5 49.6 97.6",
    "ESBN": "60.9/60.5 79.5/82.5 74.3/73.3 63.0/64.7 81.1/76.8 31.2 49.9",
    "PrediNet": "99.1/97.7 94.4/92.4 92.9/87.4 67.2/61.3 50.3/50.5 74.9 94.9",
    "Transformer": "96.3/93.6 90.9/87.5 95.9/88.7 75.1/69.4 50.3/50.4 89.1 96.0",
    "MNM": "97.3/95.5 93.6/90.2 84.9/77.0 73.8/70.6 49.9/49.8 75.7 97.5",
    "LSTM": "96.4/90.3 94.9/91.7 92.2/79.8 79.1/77.2 50.1/50.2 80.1 97.2",
    "NTM": "97.2/93.4 96.3/93.5 93.5/87.1 84.2/81.7 50.2/49.9 88.0 97.5",
    "RN": "92.9/83.7 73.6/54.5 71.2/54.6 65.7/61.7 50.5/50.4 77.5 51.0",
}
"""Means over ten seeds on hexominoes and stripes, game by game in the order of `GAMES`."""
GAMES_PAPER = {
    (game, split, name): value
    for name, row in _TABLE.items()
    for game, cell in zip(GAMES, row.split(), strict=True)
    for split, value in zip(("hexominoes", "stripes"), cell.split("/"), strict=False)
}
COMPARISONS = {
    "comparison": Case("comparison", "", "comparison"),
    "transitive-comparison": Case("transitive comparison", "", "comparison", {"transitive": True}),
    **{name: Case(name, "", name) for name in BASIC},
}


class GameOptions(GridOptions):
    """Options of relational games, with the number of updates of the thesis."""

    steps: Annotated[PositiveInt, Default(2500, "Updates of each model; the thesis has 2,500.")]
    seeds: Annotated[PositiveInt, Default(1, "Trainings of each model; the thesis has 10.")]


@experiment("relations")
def relations(
    *,
    tasks: Sequence[str] = DEFAULT_TASKS,
    holdouts: Sequence[int] = (LARGEST,),
    models: Sequence[str] = ("CoRelNet", "CoRelNet+frozen", "ESBN", "Transformer", "LSTM"),
    **budget: Unpack[GridOptions],
) -> Report:
    """Learn a rule from a few objects, and apply it to objects that are not in the training set.

    Args:
        tasks: Names of tasks: same-different, rmts, distribution-of-n, identity-rules,
            same-different-6, rmts-3, identity-rules-4 (-missing, -flipped, -flipped-missing),
            distribution-of-10 (-restricted).
        holdouts: How many of 100 objects are held out for the test of the first four; −1 for as
            many as possible, which the others have.
        models: Names of models: CoRelNet, CoRelNet-T, ESBN, PrediNet, Transformer, LSTM, RN,
            NTM, MNM, variants such as CoRelNet+sensory, CoRelNet+asymmetric and CoRelNet+frozen, or
            names of recurrent networks.
        full: Use the budget of the thesis: all of its tasks, holdouts and models, 5,000 updates,
            10 seeds. Days on two cores.
        budget: See `GridOptions`.

    Example:
        >>> result = relations(tasks=("rmts",), models=("CoRelNet", "LSTM"), steps=500)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        figures 3, 4 and 5. They print no numbers.
    """
    if budget["full"]:
        tasks, holdouts = (*BASIC, *NEW_RULES), FULL_HOLDOUTS
        models = tuple(name.replace(", ", "+") for name in VARIANTS)
        budget["steps"], budget["seeds"] = 5000, 10
    players, cases = variants(models), _cases(tasks, holdouts)
    grid = train_grid(cases, players, budget)
    settings = {"tasks": list(tasks), "holdouts": list(holdouts), **_counts(budget)}
    return grid_report("relations", _title(budget), grid, settings)


def _cases(names: Sequence[str], holdouts: Sequence[int]) -> list[Case]:
    check_names("task of this experiment", names, [*BASIC, *NEW_RULES])
    cases = []
    for name in names:
        task, options = NEW_RULES.get(name, (name, {}))
        largest = task_registry.build(task, **options).holdout
        if name in NEW_RULES:
            cases.append(Case(name, f"m = {largest}", task, options))
            continue
        sizes = dict.fromkeys(largest if m == LARGEST or m > largest else m for m in holdouts)
        cases += [Case(name, f"m = {m}", name, {"holdout": m}) for m in sizes]
    return cases


def _title(budget: GridOptions) -> str:
    return (
        f"Correct with objects that are not in the training set (%), after {budget['steps']:,} "
        f"updates; mean and deviation of {budget['seeds']} seeds."
    )


def _counts(budget: GridOptions) -> dict[str, int]:
    return {"steps": budget["steps"], "seeds": budget["seeds"]}


@experiment("relational-games")
def relational_games(
    *,
    games: Sequence[Game] = GAMES,
    models: Sequence[str] = ("CoRelNet", "CoRelNet-T", "Transformer", "LSTM"),
    **budget: Unpack[GameOptions],
) -> Report:
    """Learn relational games with pentominoes, and test them with hexominoes and stripes.

    Args:
        games: Names of games.
        models: Names of models: CoRelNet, CoRelNet-T, ESBN, PrediNet, Transformer, MNM, LSTM,
            NTM, RN, their variants, or names of recurrent networks.
        full: Use the budget of the thesis: all models and 10 seeds. Days on two cores.
        budget: See `GridOptions`.

    Example:
        >>> result = relational_games(games=("between",), models=("CoRelNet",))

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        tables 1 and 2 of the appendix; the games: M. Shanahan and others. ICML, 2020.
    """
    if budget["full"]:
        games, models = GAMES, tuple(_TABLE)
        budget["steps"], budget["seeds"] = 2500, 10
    cases = []
    for game in games:
        splits = ("hexominoes",) if game in SHAPE_GAMES else ("hexominoes", "stripes")
        names = {split: split for split in splits}
        cases.append(Case(game, "", "relational-games", {"game": game}, names))
    grid = train_grid(cases, variants(models), budget, GAMES_PAPER)
    title = f"{_title(budget)[:-1]}; in brackets the mean of ten in the thesis."
    settings = {"games": list(games), **_counts(budget)}
    return grid_report("relational-games", title, grid, settings)


@experiment("comparison")
def comparison(
    *,
    tasks: Sequence[str] = tuple(COMPARISONS),
    models: Sequence[str] = (
        *("CoRelNet", "CoRelNet+asymmetric", "ESBN", "ESBN+asymmetric"),
        *("CoRelNet-diff", "CoRelNet-mix"),
    ),
    **budget: Unpack[GridOptions],
) -> Report:
    """Decide which of two objects is larger, by similarities, differences, or both.

    Args:
        tasks: Names of tasks: comparison, transitive-comparison, same-different, rmts,
            distribution-of-n, identity-rules.
        models: Names of models: CoRelNet, CoRelNet+asymmetric, ESBN, ESBN+asymmetric,
            CoRelNet-diff, CoRelNet-mix, and those of `undamped reproduce relations`.
        full: Use the budget of the thesis: 5,000 updates, 10 seeds. A day on two cores.
        budget: See `GridOptions`.

    Example:
        >>> result = comparison(tasks=("comparison",), models=("CoRelNet", "CoRelNet-diff"))

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, figures
        7.2 and 7.3, which print no numbers. Thesis, Université de Montréal, 2022.
    """
    if budget["full"]:
        budget["steps"], budget["seeds"] = 5000, 10
    check_names("task of this experiment", tasks, list(COMPARISONS))
    grid = train_grid([COMPARISONS[name] for name in tasks], variants(models), budget)
    return grid_report(
        "comparison", _title(budget), grid, {"tasks": list(tasks), **_counts(budget)}
    )
