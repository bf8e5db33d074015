"""Relational games with objects that were never seen: tables 5.1 and C.2 of the thesis.

undamped reproduce relational-games --out pictures/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from undamped._base.options import PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.relational.contestants import chosen
from undamped.lab.papers.relational.grid import Case, Grid, Tick, play
from undamped.lab.tasks.relations.games.rules import SHAPE_GAMES, Game

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
PRINTED = {
    (game, part, name): value
    for name, row in _TABLE.items()
    for game, cell in zip(GAMES, row.split(), strict=True)
    for part, value in zip(("hexominoes", "stripes"), cell.split("/"), strict=False)
}


@experiments.register("relational-games")
def run(
    *,
    games: Sequence[Game] = GAMES,
    contestants: Sequence[str] = ("CoRelNet", "CoRelNet-T", "Transformer", "LSTM"),
    steps: PositiveInt = 2500,
    seeds: PositiveInt = 1,
    full: bool = False,
    out: str = "runs",
    tick: Tick | None = None,
) -> Grid:
    """Play relational games learnt with pentominoes on hexominoes and stripes.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        games: Which ones.
        contestants: Which ones: CoRelNet, CoRelNet-T, ESBN, PrediNet, Transformer, MNM, LSTM, NTM,
            RN, their variants, or names of recurrent networks.
        steps: Updates of each; the thesis has 2,500.
        seeds: Trainings of each; the thesis has 10.
        full: The budget of the thesis: all contestants and 10 seeds. Days on two cores.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(games=("between",), contestants=("CoRelNet",))

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        tables 1 and 2 of the appendix; the games: M. Shanahan and others. ICML, 2020.
    """
    if full:
        games, contestants, steps, seeds = GAMES, tuple(_TABLE), 2500, 10
    cases = [_case(game) for game in games]
    train = {"steps": steps, "validate_every": max(1, steps // 10)}
    scores, chances = play(cases, chosen(contestants), seeds=seeds, train=train, out=out, tick=tick)
    title = (
        f"Right in games with objects that training never saw (%), after {steps:,} updates; mean "
        f"and deviation of {seeds} seeds; in brackets the thesis's mean of ten."
    )
    settings = {"games": list(games), "steps": steps, "seeds": seeds}
    return Grid("relational-games", title, scores, chances, PRINTED, settings)


def _case(game: Game) -> Case:
    parts = ("hexominoes",) if game in SHAPE_GAMES else ("hexominoes", "stripes")
    return Case(game, "", "relational-games", {"game": game}, {part: part for part in parts})
