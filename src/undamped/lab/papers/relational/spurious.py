"""Colours that mean nothing: figures 5.6, C.3 and C.4 of the thesis, and what can be done.

An untrained encoder tells pictures of one shape in two colours apart so well that every picture is
like none but itself, to the last bit: R is the identity, and no gradient comes through its softmax.
So a frozen encoder guesses, and a learned one has nothing to begin with. Remedies let something
through: a penalty, a temperature, a scale, similarities without a softmax. Which of them is best is
decided on validation trials; that one, and the frozen encoder without any, are then trained with
further seeds, and the test says what the remedy is worth.

    undamped reproduce spurious --out pictures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from undamped._base.options import PositiveInt, unknown_name
from undamped._base.registry import experiments
from undamped.lab.papers.relational.grid import Case, Contestant, Grid, Score, Tick, play
from undamped.models.for_task import model_options

PLAIN = "as it is"
REMEDIES: dict[str, dict[str, Any]] = {
    PLAIN: {},
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


@experiments.register("spurious")
def run(
    *,
    tasks: Sequence[str] = ("rmts",),
    encoders: Sequence[str] = ("learned", "frozen", "random"),
    remedies: Sequence[str] | None = None,
    model: str = "corelnet",
    steps: PositiveInt = 500,
    batch_size: PositiveInt = 96,
    seeds: PositiveInt = 1,
    confirm: PositiveInt = 3,
    full: bool = False,
    out: str = "runs",
    tick: Tick | None = None,
) -> SpuriousGrid:
    """Follow a rule about shapes on grounds of colours that mean nothing.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        tasks: Which ones: same-different, rmts, distribution-of-n, identity-rules with a colour in
            every picture; "same-different+separated" and "rmts+separated" with colours in
            pictures of their own.
        encoders: Which ones: learned, frozen, random.
        remedies: Which ones, a comma within a name may be a plus; all that the model has, if none
            are given. Only corelnet and corelnet-t do without a softmax.
        model: corelnet, corelnet-t or esbn.
        steps: Updates of each; the thesis has 5,000.
        batch_size: Trials per update. There are 500 different pictures to learn from, each encoded
            once: many trials cost little more than a few, and leave the plateau sooner.
        seeds: Trainings of each; the thesis has 10.
        confirm: Trainings of the remedy that is best in validation, and of the frozen encoder
            without a remedy, if more.
        full: The budget of the thesis: all tasks, 5,000 updates of 96 trials, 10 seeds. Days on
            two cores.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(remedies=("as it is", "cosine"), steps=200)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022,
        figure 6. It prints no numbers. Temperature and scale are ours.
    """
    if full:
        tasks, steps, batch_size, seeds = tuple(CASES), 5000, 96, 10
    cases = []
    for name in (task.replace("+", ", ") for task in tasks):
        if name not in CASES:
            raise unknown_name("task of this experiment", name, list(CASES))
        task, colours = CASES[name]
        cases.append(Case(name, "", task, {"colours": colours}))
    if remedies is None:
        known = model_options(model)
        remedies = [name for name, options in REMEDIES.items() if set(options) <= set(known)]
    players = []
    for encoder in encoders:
        for name in (remedy.replace("+", ", ") for remedy in remedies):
            if name not in REMEDIES:
                raise unknown_name("remedy", name, list(REMEDIES))
            options = {"encoder": encoder, **REMEDIES[name]}
            players.append(Contestant(f"{encoder}, {name}", model, options))
    train = {"steps": steps, "batch_size": batch_size, "validate_every": max(1, steps // 10)}
    scores: list[Score] = []
    chances: dict[str, float] = {}
    best: dict[str, str] = {}
    for case in cases:
        found, chance = play([case], players, seeds=seeds, train=train, out=out, tick=tick)
        chances |= chance
        best[case.group] = max(found, key=lambda score: mean(score.valid)).contestant
        if confirm > seeds:
            plain = Contestant(f"frozen, {PLAIN}", model, {"encoder": "frozen"})
            again = [p for p in players if p.name in (best[case.group], plain.name)]
            again += [] if plain in again else [plain]
            more, _ = play([case], again, seeds=confirm, train=train, out=out, tick=tick)
            found = {score.contestant: score for score in (*found, *more)}.values()
        scores += found
    title = (
        f"{model} with spurious colours: right with shapes that training never saw (%), after "
        f"{steps:,} updates of {batch_size} trials; mean and deviation where there are several "
        f"seeds; in brackets right in validation, with shapes of training."
    )
    settings = {
        "model": model,
        "steps": steps,
        "batch_size": batch_size,
        "seeds": seeds,
        "confirm": confirm,
    }
    return SpuriousGrid("spurious", title, tuple(scores), chances, {}, settings, best)


@dataclass(frozen=True)
class SpuriousGrid(Grid):
    """The same, with remedies as rows and encoders as columns.

    Args:
        best: Who was best in validation, by group.
    """

    best: dict[str, str]

    def sentence(self, group: str, case: str) -> str:
        """Say which remedy validation chose, and what it is worth in the test."""
        chosen = self.of(group, case, self.best[group])
        assert chosen is not None
        said = (
            f"Best in validation: {chosen.contestant}, {100 * mean(chosen.valid):.1f}; in the test "
            f"{self._cell(group, case, chosen.contestant)} with {len(chosen.accuracies)} seeds"
        )
        plain = self.of(group, case, f"frozen, {PLAIN}")
        if plain is None:
            return f"{said}."
        more = 100 * (chosen.mean - plain.mean)
        return f"{said}, {more:+.1f} points beside the frozen encoder {PLAIN}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**super().to_dict(), "best_in_validation": self.best}

    def _cell(self, group: str, case: str, contestant: str) -> str:
        score = self.of(group, case, contestant)
        said = super()._cell(group, case, contestant)
        return f"{said} ({100 * mean(score.valid):.1f})" if score is not None else said

    def markdown(self) -> str:
        """Return a table for each task."""
        parts = [self.title, ""]
        for group, case in self.rows:
            pairs = [name.partition(", ")[::2] for name in self.contestants]
            encoders = list(dict.fromkeys(encoder for encoder, _ in pairs))
            parts += [
                f"{group} (a guess: {100 * self.chances[group]:.0f})",
                "",
                f"| remedy | {' | '.join(encoders)} |",
                "|---|" + "---:|" * len(encoders),
            ]
            for remedy in dict.fromkeys(remedy for _, remedy in pairs):
                cells = [self._cell(group, case, f"{encoder}, {remedy}") for encoder in encoders]
                parts.append(f"| {remedy} | {' | '.join(cells)} |")
            parts += ["", self.sentence(group, case), ""]
        return "\n".join(parts)

    def figures(self) -> dict[str, Any]:
        """Return the picture: remedies from top to bottom, a mark for each encoder."""
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        pairs = [name.partition(", ")[::2] for name in self.contestants]
        encoders = list(dict.fromkeys(encoder for encoder, _ in pairs))
        remedies = list(dict.fromkeys(remedy for _, remedy in pairs))
        size = (3.4 * len(self.rows) + 2, 0.33 * len(remedies) + 1.6)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(self.rows), squeeze=False, sharey=True)[0]
        places = list(range(len(remedies)))[::-1]
        for axis, (group, case) in zip(axes, self.rows, strict=True):
            for index, encoder in enumerate(encoders):
                found = [self.of(group, case, f"{encoder}, {remedy}") for remedy in remedies]
                axis.errorbar(
                    [100 * score.mean if score else float("nan") for score in found],
                    [place + 0.12 * (1 - index) for place in places],
                    xerr=[100 * score.deviation if score else 0.0 for score in found],
                    fmt="osD"[index % 3],
                    color=line_of(index)["color"],
                    label=f"{encoder} encoder",
                )
            axis.axvline(100 * self.chances[group], color="0.5", linewidth=0.8, linestyle=":")
            axis.set_yticks(places, remedies)
            axis.set_xlim(0, 103)
            axis.set_xlabel("right with new shapes (%)")
            axis.set_title(group, fontsize=9)
            axis.grid(axis="y", alpha=0.3)
        axes[0].legend(fontsize=7)
        return {self.name: figure}
