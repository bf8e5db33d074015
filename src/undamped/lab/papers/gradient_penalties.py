"""Penalties that preserve the gradient through the depth of a neural ODE: `kept-gradients`.

A neural ODE of depth T is trained without a penalty and with each of those of `keep_gradient`, at
several weights, beside models that preserve a quantity by construction. Measured on the test set,
with the gradient of its loss: how far ‖a(t)‖ and the parameters' share ‖y(t)‖ vary over depth, the
coherence of the shares, accuracy, evaluations of the field, CPU seconds.

    undamped reproduce kept-gradients --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Annotated, Any, Unpack

import torch

from undamped._base.errors import OptionError
from undamped._base.options import Default, Fraction, PositiveFloat, PositiveInt, options_of
from undamped._base.registry import models, tasks
from undamped.analysis.gradient_preservation import GradientPreservation, gradient_preservation
from undamped.lab.papers.runs import RunOptions, check_names, experiment, fit_once
from undamped.lab.report.charts import label, line_style, panels
from undamped.lab.report.table import Report, Table
from undamped.lab.training import Run
from undamped.models.continuous.base import ContinuousModel
from undamped.models.point_model import PointModel
from undamped.ode.flows.depth_gradients import PENALTIES

TEST_SAMPLES = 1024
"""Largest number of test samples whose gradients are measured."""
NO_PENALTY = "none"


class TrainingOptions(RunOptions):
    """Size and training of every model."""

    depth: Annotated[PositiveFloat, Default(10.0, "T.")]
    hidden_size: Annotated[PositiveInt, Default(32, "Width of every field.")]
    steps: Annotated[PositiveInt, Default(100, "Updates of each training.")]
    batch_size: Annotated[PositiveInt, Default(64, "Samples per update.")]
    seeds: Annotated[PositiveInt, Default(5, "Trainings of each, with different splits.")]


@dataclass(frozen=True)
class PenaltyRun:
    """One training.

    Args:
        model: Registry name.
        penalty: The penalty, or "none".
        weight: Of the penalty.
        seed: Of data and model.
        accuracy: On the test set.
        loss: On the test set.
        gradients: The norms of its gradients over depth.
        evaluations: Of the field, for the test set.
        cpu_seconds: CPU time of training.
    """

    model: str
    penalty: str
    weight: float
    seed: int
    accuracy: float
    loss: float
    gradients: GradientPreservation
    evaluations: int
    cpu_seconds: float


Groups = Mapping[tuple[str, str, float], list[PenaltyRun]]
"""Trainings that differ only in their seed, by model, penalty and weight."""


@experiment("kept-gradients")
def run(
    *,
    task: str = "breast-cancer",
    model: str = "node",
    penalties: Sequence[str] = PENALTIES,
    weights: Sequence[PositiveFloat] = (0.1, 1.0, 10.0),
    cosine: Fraction = 0.95,
    baselines: Sequence[str] = ("antisymmetric-node", "linear-antisymmetric-node", "odetoode"),
    **budget: Unpack[TrainingOptions],
) -> Report:
    """Preserve the gradient along the depth of a neural ODE by penalties, and measure the cost.

    Args:
        task: Classification of points: breast-cancer, annuli or spirals.
        model: A model of continuous depth.
        penalties: Names of penalties: norm, parameters, direction, every-direction.
        weights: Factors on each.
        cosine: Smallest cosine of y(t) and y(T) that 'direction' does not penalise.
        baselines: Models that are trained without a penalty, for comparison.
        budget: Size and training; see `TrainingOptions`.

    Example:
        >>> result = run(penalties=("norm",), weights=(1.0,), seeds=1)

    Reference:
        K. Choromanski and others. Ode to an ODE. NeurIPS, 2020, on gradients that preserve their
        norm; the penalties are ours.
    """
    steps, batch_size, seeds = budget["steps"], budget["batch_size"], budget["seeds"]
    check_names("penalty", penalties, PENALTIES)
    for name in (model, *baselines):
        if not issubclass(models[name], ContinuousModel):
            raise OptionError(
                f"'{name}' is not a model of continuous depth, such as node or hbnode. "
                "See 'undamped list models'."
            )
    plan = [(model, NO_PENALTY, 0.0)]
    plan += [(model, penalty, weight) for penalty in penalties for weight in weights]
    plan += [(name, NO_PENALTY, 0.0) for name in baselines if name != model]
    splits = "split_seed" in options_of(tasks[task])
    groups: dict[tuple[str, str, float], list[PenaltyRun]] = {}
    for number, (name, penalty, weight) in enumerate(plan):
        model_options = {"depth": budget["depth"], "hidden_size": budget["hidden_size"]}
        if penalty != NO_PENALTY:
            model_options |= {"keep_gradient": penalty, "keep_weight": weight}
            model_options |= {"keep_cosine": cosine} if penalty == "direction" else {}
        for seed in range(seeds):
            variant = "" if penalty == NO_PENALTY else f"{penalty} {weight:g} "
            fraction = (number * seeds + seed) / (len(plan) * seeds)
            budget["progress"](f"{name} {variant}seed {seed}", fraction)
            trained = fit_once(
                name,
                task,
                model_options=model_options,
                task_options={"split_seed": seed} if splits else {},
                train={
                    "steps": steps,
                    "batch_size": batch_size,
                    "validate_every": max(1, steps // 10),
                },
                seed=seed,
                out=budget["out"],
            )
            entry = _measure(trained, name, penalty, weight, seed)
            groups.setdefault((name, penalty, weight), []).append(entry)
    header = ("model", "kept", "weight", "test accuracy %", "q95/q05 − 1 of ‖a‖", "of ‖y‖")
    rows = [_row(*key, group) for key, group in groups.items()]
    title = summary_sentence({"task": task, "model": model, **budget}, groups)
    return Report(
        [entry for group in groups.values() for entry in group],
        [Table((*header, "coherence", "NFE", "CPU s"), rows, title, text_columns=2)],
        {
            "kept_gradients": lambda: _curves(model, groups),
            "kept_gradients_cost": lambda: _cost(model, groups),
        },
    )


def _measure(run: Run, model: str, penalty: str, weight: float, seed: int) -> PenaltyRun:
    """Measure the gradient of the test loss through the depth of a trained model."""
    trained, task, result = run.model(), run.task(), run.result
    assert isinstance(trained, PointModel) and result is not None
    batch = task.batch("test", 0, TEST_SAMPLES)
    network: Any = trained.network.eval()
    with torch.no_grad():
        network(batch.inputs)
    evaluations = network.evaluations
    gradients = gradient_preservation(
        network, batch.inputs, loss=lambda answer: task.loss(answer, batch), name=model
    )
    return PenaltyRun(
        model=model,
        penalty=penalty,
        weight=weight,
        seed=seed,
        accuracy=result["test"]["accuracy"],
        loss=result["test"]["loss"],
        gradients=gradients,
        evaluations=evaluations,
        cpu_seconds=result["cpu_seconds"],
    )


def _row(model: str, penalty: str, weight: float, runs: Sequence[PenaltyRun]) -> tuple[str, ...]:
    """Return means over seeds."""
    deviation = f" ± {100 * stdev(run.accuracy for run in runs):.1f}" if len(runs) > 1 else ""
    return (
        model,
        penalty if weight else "",
        f"{weight:g}" if weight else "",
        f"{100 * _accuracy(runs):.1f}{deviation}",
        f"{_variation(runs):.3g}",
        f"{_share_variation(runs):.3g}",
        f"{mean(run.gradients.coherence for run in runs):.2f}",
        f"{mean(run.evaluations for run in runs):.0f}",
        f"{mean(run.cpu_seconds for run in runs):.0f}",
    )


def _accuracy(runs: Sequence[PenaltyRun]) -> float:
    return mean(run.accuracy for run in runs)


def _variation(runs: Sequence[PenaltyRun]) -> float:
    """Return q95/q05 − 1 of ‖a‖, the mean over seeds."""
    return mean(run.gradients.spread for run in runs) - 1


def _share_variation(runs: Sequence[PenaltyRun]) -> float:
    """Return q95/q05 − 1 of ‖y‖, the mean over seeds."""
    return mean(run.gradients.contribution_spread for run in runs) - 1


def summary_sentence(settings: Mapping[str, Any], groups: Groups) -> str:
    """Return what preserving ‖a‖ achieves at a cost of at most one point of accuracy.

    Args:
        settings: The settings of the experiment.
        groups: All trainings.
    """
    unpenalised = groups[settings["model"], NO_PENALTY, 0.0]
    before, accuracy = _variation(unpenalised), _accuracy(unpenalised)
    text = (
        f"{settings['task']}, depth {settings['depth']:g}, means of {settings['seeds']} seeds: "
        f"without a penalty q95/q05 − 1 of ‖a(t)‖ over depth is {before:.3g}"
    )
    comparable = [
        (_variation(runs), weight, _accuracy(runs))
        for (model, penalty, weight), runs in groups.items()
        if (model, penalty) == (settings["model"], "norm") and _accuracy(runs) >= accuracy - 0.01
    ]
    if not comparable:
        return f"{text}; preserving ‖a‖ costs more than a point of accuracy at every weight."
    after, weight, penalised = min(comparable)
    return (
        f"{text}; with a penalty on ‖a‖ of weight {weight:g} it is {after:.3g}, "
        f"{after / before:.0%} of that, at {100 * (penalised - accuracy):+.1f} points of accuracy."
    )


def _curves(model: str, groups: Groups) -> Any:
    kinds = {
        "norm": ("norms", "‖a(t)‖/‖a(T)‖, median"),
        "parameters": ("contributions", "‖y(t)‖/largest"),
        "direction": ("cosines", "cos(y(t), y(T))"),
    }
    figure, all_axes = panels(12, 3.6, columns=len(kinds))
    for axes, (kind, (curve, unit)) in zip(all_axes, kinds.items(), strict=True):
        curves = [
            (weight, runs)
            for (name, penalty, weight), runs in groups.items()
            if name == model and penalty in (NO_PENALTY, kind)
        ]
        for index, (weight, (first, *further)) in enumerate(curves):
            name, style = f"weight {weight:g}" if weight else "no penalty", line_style(index)
            values = getattr(first.gradients, curve)
            axes.plot(first.gradients.times, values, label=name, linewidth=1.2, **style)
            for run in further:
                values = getattr(run.gradients, curve)
                axes.plot(run.gradients.times, values, linewidth=0.5, alpha=0.5, **style)
        log = "" if curve == "cosines" else "y"
        label(axes, "depth t", unit, f"keep_gradient={kind}", log=log)
    return figure


def _cost(model: str, groups: Groups) -> Any:
    figure, all_axes = panels(10, 3.8, columns=2)
    quantities = (("‖a(t)‖", _variation), ("‖y(t)‖", _share_variation))
    for axes, (symbol, variation) in zip(all_axes, quantities, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for (name, penalty, _), runs in groups.items():
            point = (variation(runs), 100 * _accuracy(runs))
            if penalty != NO_PENALTY:
                lines.setdefault(f"penalty on {penalty}", []).append(point)
            elif name == model:
                axes.plot(*point, "k*", markersize=10, label="no penalty")
            else:
                lines[name] = [point]
        for index, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*points, strict=True), marker="o", label=name, **line_style(index))
        axes.set_xscale("symlog", linthresh=0.01)
        axes.set_xlim(left=0)
        unit = f"q95/q05 − 1 of {symbol} over depth"
        label(axes, unit, "test accuracy, %", legend=axes is all_axes[0])
    return figure
