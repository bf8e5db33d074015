"""Gradients that keep their size through depth, and what that costs: penalties on a deep NODE.

A neural ODE of depth T learns without a penalty and with each of those of `keep_gradient`, at
several weights; beside it the models that keep something by what they are. Measured on the test
part, with the gradient of its loss: how far ‖a(t)‖ and the parameters' share ‖y(t)‖ vary over
depth, how much of the shares adds up, accuracy, evaluations of the field, seconds.

    undamped reproduce kept-gradients --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch

from undamped._base.errors import OptionError, explain
from undamped._base.options import Fraction, PositiveFloat, PositiveInt, options_of, unknown_name
from undamped._base.registry import experiments, models, tasks
from undamped.analysis.kept_gradient import KeptGradient, kept_gradient
from undamped.lab.papers.kept_runs import kept_fit
from undamped.lab.training import Run
from undamped.models.continuous.base import ContinuousModel
from undamped.models.point_model import PointModel
from undamped.ode.flows.gradient_keeping import KEPT

TESTED = 1024
"""How many samples of the test part are followed, at most."""


@dataclass(frozen=True)
class Kept:
    """One training.

    Args:
        model: Registry name.
        kind: What was kept, or "none".
        weight: Of the penalty.
        seed: Of data and model.
        accuracy: On the test part.
        loss: On the test part.
        gradients: What its gradients do over depth.
        evaluations: Of the field, for the test part.
        cpu_seconds: Of training.
    """

    model: str
    kind: str
    weight: float
    seed: int
    accuracy: float
    loss: float
    gradients: KeptGradient
    evaluations: int
    cpu_seconds: float


@dataclass(frozen=True)
class KeptGradientsExperiment:
    """All trainings, with the settings that made them."""

    runs: tuple[Kept, ...]
    settings: dict[str, Any]

    @property
    def groups(self) -> dict[tuple[str, str, float], list[Kept]]:
        """Trainings that differ in their seed alone, by model, penalty and weight."""
        found: dict[tuple[str, str, float], list[Kept]] = {}
        for run in self.runs:
            found.setdefault((run.model, run.kind, run.weight), []).append(run)
        return found

    @property
    def plain(self) -> list[Kept]:
        """The trainings without a penalty."""
        return self.groups[self.settings["model"], "none", 0.0]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        rows = [{**vars(run), "gradients": run.gradients.to_dict()} for run in self.runs]
        return {"settings": self.settings, "runs": rows}

    def markdown(self) -> str:
        """Return a sentence and a table: means over seeds."""
        lines = [
            self.sentence,
            "",
            "| model | kept | weight | test accuracy % | q95/q05 − 1 of ‖a‖ | of ‖y‖ | coherence "
            "| NFE | CPU s |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for (model, kind, weight), runs in self.groups.items():
            spread = f" ± {100 * stdev(r.accuracy for r in runs):.1f}" if len(runs) > 1 else ""
            lines.append(
                f"| {model} | {kind if weight else ''} | {f'{weight:g}' if weight else ''} | "
                f"{100 * mean(r.accuracy for r in runs):.1f}{spread} | "
                f"{_varies(runs):.3g} | {mean(r.gradients.share_spread for r in runs) - 1:.3g} | "
                f"{mean(r.gradients.coherence for r in runs):.2f} | "
                f"{mean(r.evaluations for r in runs):.0f} | "
                f"{mean(r.cpu_seconds for r in runs):.0f} |"
            )
        return "\n".join(lines) + "\n"

    @property
    def sentence(self) -> str:
        """What keeping ‖a‖ does at no more than a point of accuracy."""
        before, right = _varies(self.plain), mean(run.accuracy for run in self.plain)
        begun = (
            f"{self.settings['task']}, depth {self.settings['depth']:g}, means of "
            f"{self.settings['seeds']} seeds: without a penalty q95/q05 − 1 of ‖a(t)‖ over depth "
            f"is {before:.3g}"
        )
        near = [
            (_varies(runs), weight, mean(run.accuracy for run in runs))
            for (model, kind, weight), runs in self.groups.items()
            if model == self.settings["model"] and kind == "norm"
            and mean(run.accuracy for run in runs) >= right - 0.01
        ]  # fmt: skip
        if not near:
            return f"{begun}; keeping ‖a‖ costs more than a point of accuracy at every weight."
        after, weight, kept = min(near)
        change = 100 * (kept - right)
        return (
            f"{begun}; with ‖a‖ kept by a weight of {weight:g} it is {after:.3g}, "
            f"{after / before:.0%} of that, at {change:+.1f} points of accuracy."
        )

    def figures(self) -> dict[str, Any]:
        """Return pictures: curves over depth for each penalty, and what keeping costs."""
        return {"kept_gradients": self._curves(), "kept_gradients_cost": self._cost()}

    def _curves(self) -> Any:
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        panels = {
            "norm": ("norms", "‖a(t)‖/‖a(T)‖, median"),
            "parameters": ("shares", "‖y(t)‖/largest"),
            "direction": ("cosines", "cos(y(t), y(T))"),
        }
        figure = Figure(figsize=(12, 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels))
        for axis, (kind, (curve, label)) in zip(axes, panels.items(), strict=True):
            chosen = [
                (weight, runs)
                for (model, kept, weight), runs in self.groups.items()
                if model == self.settings["model"] and kept in ("none", kind)
            ]
            for index, (weight, runs) in enumerate(chosen):
                name = f"weight {weight:g}" if weight else "no penalty"
                for number, run in enumerate(runs):
                    drawn = run.gradients
                    axis.plot(
                        drawn.times,
                        getattr(drawn, curve),
                        label=name if number == 0 else None,
                        linewidth=1.2 if number == 0 else 0.5,
                        alpha=1.0 if number == 0 else 0.5,
                        **line_of(index),
                    )
            if curve != "cosines":
                axis.set_yscale("log")
            axis.set_xlabel("depth t")
            axis.set_ylabel(label)
            axis.set_title(f"keep_gradient={kind}", fontsize=9)
            axis.legend(fontsize=7)
        return figure

    def _cost(self) -> Any:
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        figure = Figure(figsize=(10, 3.8), layout="constrained")
        axes = figure.subplots(1, 2)
        for axis, of_shares in zip(axes, (False, True), strict=True):
            at = [_point(self.plain, of_shares)]
            axis.plot(*zip(*at, strict=True), "k*", markersize=10, label="no penalty")
            lines: dict[str, list[tuple[float, float]]] = {}
            for (model, kind, _), runs in self.groups.items():
                if kind != "none":
                    lines.setdefault(f"{kind} kept", []).append(_point(runs, of_shares))
                elif model != self.settings["model"]:
                    lines[model] = [_point(runs, of_shares)]
            for index, (name, points) in enumerate(lines.items()):
                axis.plot(*zip(*points, strict=True), marker="o", label=name, **line_of(index))
            axis.set_xscale("symlog", linthresh=0.01)
            axis.set_xlim(left=0)
            axis.set_xlabel(f"q95/q05 − 1 of {'‖y(t)‖' if of_shares else '‖a(t)‖'} over depth")
            axis.set_ylabel("test accuracy, %")
        axes[0].legend(fontsize=7)
        return figure


def _varies(runs: Sequence[Kept]) -> float:
    """Return q95/q05 − 1 of ‖a‖, the mean over seeds."""
    return mean(run.gradients.spread for run in runs) - 1


def _point(runs: Sequence[Kept], of_shares: bool) -> tuple[float, float]:
    shares = mean(run.gradients.share_spread for run in runs) - 1
    return shares if of_shares else _varies(runs), 100 * mean(run.accuracy for run in runs)


@experiments.register("kept-gradients")
def run(
    *,
    task: str = "breast-cancer",
    model: str = "node",
    kept: Sequence[str] = KEPT,
    weights: Sequence[PositiveFloat] = (0.1, 1.0, 10.0),
    cosine: Fraction = 0.95,
    beside: Sequence[str] = ("antisymmetric-node", "linear-antisymmetric-node", "odetoode"),
    depth: PositiveFloat = 10.0,
    hidden_size: PositiveInt = 32,
    steps: PositiveInt = 100,
    batch_size: PositiveInt = 64,
    seeds: PositiveInt = 5,
    out: str = "runs",
    tick: Callable[..., None] | None = None,
) -> KeptGradientsExperiment:
    """Keep the gradient along the depth of a neural ODE by penalties, and see what it costs.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        task: Points to tell apart: breast-cancer, annuli or spirals.
        model: A model of continuous depth.
        kept: Which penalties: norm, parameters, direction, every-direction.
        weights: Factors on each.
        cosine: What 'direction' asks the cosine of y(t) and y(T) to be at least.
        beside: Models that are trained without a penalty, for comparison.
        depth: T.
        hidden_size: Width of every field.
        steps: Updates of each training.
        batch_size: Samples an update.
        seeds: Trainings of each, with splits of their own.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(kept=("norm",), weights=(1.0,), seeds=1)

    Reference:
        K. Choromanski and others. Ode to an ODE. NeurIPS, 2020, on gradients that keep their
        norm; penalties are ours.
    """
    for name in kept:
        if name not in KEPT:
            raise unknown_name("penalty", name, list(KEPT))
    for name in (model, *beside):
        if not issubclass(models[name], ContinuousModel):
            raise OptionError(
                explain(
                    "model" if name == model else "beside",
                    expected="models of continuous depth, such as node or hbnode",
                    got=f"'{name}'",
                    remedy="See 'undamped list models'.",
                )
            )
    plan = [(model, "none", 0.0), *((model, kind, weight) for kind in kept for weight in weights)]
    plan += [(name, "none", 0.0) for name in beside if name != model]
    train = {"steps": steps, "batch_size": batch_size, "validate_every": max(1, steps // 10)}
    splits = "split_seed" in options_of(tasks[task])
    runs: list[Kept] = []
    for number, (name, kind, weight) in enumerate(plan):
        options: dict[str, Any] = {"depth": depth, "hidden_size": hidden_size}
        if kind != "none":
            options |= {"keep_gradient": kind, "keep_weight": weight}
            options |= {"keep_cosine": cosine} if kind == "direction" else {}
        for seed in range(seeds):
            if tick is not None:
                done = (number * seeds + seed) / (len(plan) * seeds)
                tick(f"{name} {'' if kind == 'none' else f'{kind} {weight:g} '}seed {seed}", done)
            trained = kept_fit(
                name,
                task,
                model_options=options,
                task_options={"split_seed": seed} if splits else {},
                train=train,
                seed=seed,
                out=out,
            )
            runs.append(_followed(trained, name, kind, weight, seed))
    settings = {
        "task": task,
        "model": model,
        "depth": depth,
        "hidden_size": hidden_size,
        "steps": steps,
        "batch_size": batch_size,
        "seeds": seeds,
        "cosine": cosine,
    }
    return KeptGradientsExperiment(tuple(runs), settings)


def _followed(run: Run, model: str, kind: str, weight: float, seed: int) -> Kept:
    """Follow the gradient of the test part's loss through the depth of a trained model."""
    built, task, result = run.model(), run.task(), run.result
    assert isinstance(built, PointModel) and result is not None
    batch = task.batch("test", 0, TESTED)
    network: Any = built.network.eval()
    with torch.no_grad():
        network(batch.inputs)
    evaluations = network.evaluations
    gradients = kept_gradient(
        network, batch.inputs, loss=lambda answer: task.loss(answer, batch), name=model
    )
    return Kept(
        model=model,
        kind=kind,
        weight=weight,
        seed=seed,
        accuracy=result["test"]["accuracy"],
        loss=result["test"]["loss"],
        gradients=gradients,
        evaluations=evaluations,
        cpu_seconds=result["cpu_seconds"],
    )
