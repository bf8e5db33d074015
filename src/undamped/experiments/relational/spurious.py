"""Colours that mean nothing: figures 5.6, C.3 and C.4 of the thesis, and what can be done.

An untrained encoder tells pictures of one shape in two colours apart so well that every picture is
like none but itself, to the last bit: R is the identity, and no gradient comes through its softmax.
So a frozen encoder guesses, and a learned one has nothing to begin with. Remedies let something
through: a penalty, a temperature, a scale.

    undamped reproduce spurious --out pictures/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undamped.experiments.relational.grid import Case, Contestant, Grid, Tick, play
from undamped.options import PositiveInt, unknown_name
from undamped.registry import experiments

REMEDIES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "L1 on weights": {"l1": 0.001},
    "L1 on weights, thesis": {"l1": 1.0},
    "L1 on codes": {"l1": 1.0, "l1_on": "representations"},
    "temperature 8": {"temperature": 8.0},
    "temperature 30": {"temperature": 30.0},
    "1/√d": {"scaling": "dimension"},
    "cosine": {"scaling": "cosine"},
    "cosine, temperature 0.3": {"scaling": "cosine", "temperature": 0.3},
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
    remedies: Sequence[str] = tuple(REMEDIES),
    model: str = "corelnet",
    steps: PositiveInt = 1000,
    batch_size: PositiveInt = 32,
    seeds: PositiveInt = 1,
    full: bool = False,
    out: str = "runs",
    tick: Tick | None = None,
) -> Grid:
    """Follow a rule about shapes on grounds of colours that mean nothing.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        tasks: Which ones: same-different, rmts, distribution-of-n, identity-rules with a colour in
            every picture; "same-different+separated" and "rmts+separated" with colours in
            pictures of their own.
        encoders: Which ones: learned, frozen, random.
        remedies: Which ones; a comma within a name may be a plus.
        model: corelnet, corelnet-t or esbn.
        steps: Updates of each; the thesis has 5,000.
        batch_size: Trials per update; the thesis has 96.
        seeds: Trainings of each; the thesis has 10.
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
    players = []
    for encoder in encoders:
        for name in (remedy.replace("+", ", ") for remedy in remedies):
            if name not in REMEDIES:
                raise unknown_name("remedy", name, list(REMEDIES))
            options = {"encoder": encoder, **REMEDIES[name]}
            players.append(Contestant(f"{encoder}, {name}", model, options))
    train = {"steps": steps, "batch_size": batch_size, "validate_every": max(1, steps // 10)}
    scores, chances = play(cases, players, seeds=seeds, train=train, out=out, tick=tick)
    title = (
        f"{model} with spurious colours: right with shapes that training never saw (%), after "
        f"{steps:,} updates of {batch_size} trials; mean and deviation of {seeds} seeds."
    )
    settings = {"model": model, "steps": steps, "batch_size": batch_size, "seeds": seeds}
    return SpuriousGrid("spurious", title, scores, chances, {}, settings)


class SpuriousGrid(Grid):
    """The same, with remedies as rows and encoders as columns."""

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
            parts.append("")
        return "\n".join(parts)

    def figures(self) -> dict[str, Any]:
        """Return the picture: remedies from top to bottom, a mark for each encoder."""
        from matplotlib.figure import Figure

        from undamped.experiments.drawing import line_of

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
