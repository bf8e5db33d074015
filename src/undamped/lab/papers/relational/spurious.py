"""Spurious colours: figures 5.6, C.3 and C.4 of the thesis, and remedies.

An untrained encoder separates images of one shape in two colours so well that every image is
similar only to itself, to the last bit: R is the identity, and no gradient passes its softmax. So a
frozen encoder answers at random, and a learned one receives no gradient. The remedies let a
gradient through: a penalty, a temperature, a scale, similarities without a softmax. The best one is
selected on validation trials; it and the frozen encoder without a remedy are then trained with
further seeds and tested.

    undamped reproduce spurious --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Annotated, Any, Unpack

from undamped._base.options import Default, PositiveInt
from undamped.lab.papers.relational.grid import Case, Grid, GridOptions, ModelVariant, train_grid
from undamped.lab.papers.runs import check_names, experiment, unique
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report, Table
from undamped.models.for_task import model_options

UNCHANGED = "as it is"
UNCHANGED_FROZEN = f"frozen, {UNCHANGED}"
REMEDIES: dict[str, dict[str, Any]] = {
    UNCHANGED: {},
    "L1 on weights": {"l1": 0.001},
    "L1 on weights, thesis": {"l1": 1.0},
    "L1 on codes": {"l1": 1.0, "l1_on": "representations"},
    "temperature 8": {"temperature": 8.0},
    "temperature 30": {"temperature": 30.0},
    "1/√d": {"scaling": "dimension"},
    "cosine": {"scaling": "cosine"},
    "cosine, temperature 0.3": {"scaling": "cosine", "temperature": 0.3},
    "cosine, no softmax": {"scaling": "cosine", "rows": "raw"},
}
CASES = {
    "same-different": ("same-different", "joint"),
    "rmts": ("rmts", "joint"),
    "distribution-of-n": ("distribution-of-n", "joint"),
    "identity-rules": ("identity-rules", "joint"),
    "same-different, separated": ("same-different", "separated"),
    "rmts, separated": ("rmts", "separated"),
}


class SpuriousOptions(GridOptions):
    """Options of training, and of the seeds that confirm the best remedy."""

    seeds: Annotated[PositiveInt, Default(1, "Trainings of each; the thesis has 10.")]
    confirm: Annotated[
        PositiveInt,
        Default(
            3,
            "Trainings of the best remedy in validation, and of the frozen encoder without a "
            "remedy, if more.",
        ),
    ]


@experiment("spurious")
def run(
    *,
    tasks: Sequence[str] = ("rmts",),
    encoders: Sequence[str] = ("learned", "frozen", "random"),
    remedies: Sequence[str] | None = None,
    model: str = "corelnet",
    batch_size: PositiveInt = 96,
    **budget: Unpack[SpuriousOptions],
) -> Report:
    """Learn a rule about shapes whose images have irrelevant colours.

    Args:
        tasks: Names of tasks: same-different, rmts, distribution-of-n, identity-rules with a colour
            in every image; "same-different+separated" and "rmts+separated" with colours in
            separate images.
        encoders: Names of encoders: learned, frozen, random.
        remedies: Names of remedies, in which a plus may stand for a comma; by default all that the
            model has. Only corelnet and corelnet-t work without a softmax.
        model: corelnet, corelnet-t or esbn.
        batch_size: Trials per update. There are 500 different training images, each encoded once:
            many trials cost little more than a few, and leave the plateau sooner.
        full: Use the budget of the thesis: all tasks, 5,000 updates of 96 trials, 10 seeds. Days on
            two cores.
        budget: See `GridOptions`.

    Example:
        >>> result = run(remedies=("as it is", "cosine"), steps=200)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        figure 6. It prints no numbers. Temperature and scale are ours.
    """
    if budget["full"]:
        tasks, batch_size = tuple(CASES), 96
        budget["steps"], budget["seeds"] = 5000, 10
    names = [task.replace("+", ", ") for task in tasks]
    check_names("task of this experiment", names, list(CASES))
    if remedies is None:
        declared = set(model_options(model))
        remedies = [name for name, changes in REMEDIES.items() if set(changes) <= declared]
    remedies = [remedy.replace("+", ", ") for remedy in remedies]
    check_names("remedy", remedies, list(REMEDIES))
    players = [
        ModelVariant(f"{encoder}, {remedy}", model, {"encoder": encoder, **REMEDIES[remedy]})
        for encoder in encoders
        for remedy in remedies
    ]
    unchanged = ModelVariant(UNCHANGED_FROZEN, model, {"encoder": "frozen"})
    grid, best = Grid([], {}), {}
    for name in names:
        task, colours = CASES[name]
        cases = [Case(name, "", task, {"colours": colours})]
        trained = train_grid(cases, players, budget, batch_size=batch_size)
        scores = {score.contestant: score for score in trained.scores}
        best[name] = max(scores.values(), key=lambda score: mean(score.valid)).contestant
        if budget["confirm"] > budget["seeds"]:
            confirmed_players = [
                player for player in players if player.name in (best[name], unchanged.name)
            ]
            confirmed_players += [] if unchanged in confirmed_players else [unchanged]
            more_seeds = {**budget, "seeds": budget["confirm"]}
            confirmed = train_grid(cases, confirmed_players, more_seeds, batch_size=batch_size)
            scores |= {score.contestant: score for score in confirmed.scores}
        grid = Grid([*grid.scores, *scores.values()], {**grid.chances, **trained.chances})
    title = (
        f"{model} with spurious colours: correct with shapes that are not in the training set (%), "
        f"after {budget['steps']:,} updates of {batch_size} trials; mean and deviation where there "
        "are several seeds; in brackets correct in validation, with shapes of training."
    )
    return Report(
        grid.records(),
        [Table((), (), title), *_tables(grid, best)],
        {"spurious": lambda: _figure(grid)},
        {"chances": grid.chances, "best_in_validation": best},
        {"steps": budget["steps"], "seeds": budget["seeds"], "batch_size": batch_size},
    )


def _cell(grid: Grid, group: str, contestant: str) -> str:
    score = grid.score(group, "", contestant)
    return "" if score is None else f"{score.cell()} ({100 * mean(score.valid):.1f})"


def _axes_of(grid: Grid) -> tuple[list[str], list[str]]:
    """Return the encoders and the remedies of a grid."""
    pairs = [name.partition(", ")[::2] for name in grid.models]
    return unique(encoder for encoder, _ in pairs), unique(remedy for _, remedy in pairs)


def _tables(grid: Grid, best: Mapping[str, str]) -> list[Table]:
    """Return a table for each task: remedies as rows, encoders as columns."""
    encoders, remedies = _axes_of(grid)
    return [
        Table(
            ("remedy", *encoders),
            [(r, *(_cell(grid, group, f"{e}, {r}") for e in encoders)) for r in remedies],
            f"{group} (chance: {100 * grid.chances[group]:.0f})",
            [_sentence(grid, group, best[group])],
        )
        for group, _ in grid.rows
    ]


def _sentence(grid: Grid, group: str, contestant: str) -> str:
    """Return which remedy was selected in validation, and its score in the test."""
    selected = grid.score(group, "", contestant)
    assert selected is not None
    text = (
        f"Best in validation: {contestant}, {100 * mean(selected.valid):.1f}; in the test "
        f"{_cell(grid, group, contestant)} with {len(selected.accuracies)} seeds"
    )
    unchanged = grid.score(group, "", UNCHANGED_FROZEN)
    if unchanged is None:
        return f"{text}."
    gain = 100 * (selected.mean - unchanged.mean)
    return f"{text}, {gain:+.1f} points more than the frozen encoder {UNCHANGED}."


def _figure(grid: Grid) -> Any:
    encoders, remedies = _axes_of(grid)
    groups = [group for group, _ in grid.rows]
    size = (3.4 * len(groups) + 2, 0.33 * len(remedies) + 1.6)
    figure, all_axes = panels(*size, columns=len(groups), sharey=True)
    heights = list(range(len(remedies)))[::-1]
    for axes, group in zip(all_axes, groups, strict=True):
        for index, encoder in enumerate(encoders):
            scores = [grid.score(group, "", f"{encoder}, {remedy}") for remedy in remedies]
            axes.errorbar(
                [100 * score.mean if score else float("nan") for score in scores],
                [height + 0.12 * (1 - index) for height in heights],
                xerr=[100 * score.deviation if score else 0.0 for score in scores],
                fmt="osD"[index % 3],
                color=colour(index),
                label=f"{encoder} encoder",
            )
        axes.axvline(100 * grid.chances[group], color="0.5", linewidth=0.8, linestyle=":")
        axes.set_yticks(heights, remedies)
        axes.set_xlim(0, 103)
        axes.grid(axis="y", alpha=0.3)
        label(axes, "correct with new shapes (%)", title=group, legend=axes is all_axes[0])
    return figure
