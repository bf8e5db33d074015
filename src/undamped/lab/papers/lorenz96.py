"""Forecasts of a chaotic system: UnICORNN paper, table 7, LSTM, coRNN and UnICORNN at two forces.

All three have about 9,000 parameters, as in the paper. The paper trains for 250 + 250 epochs with
settings from a random search that it does not print; here the settings were selected on the
validation set with a small search, and training is short. Two baselines need no training over time:
the mean state, and a linear map of the present state.

    undamped reproduce lorenz96 epochs=6 --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import torch

from undamped._base.options import PositiveInt
from undamped._base.registry import tasks
from undamped.lab.papers.runs import SeedOptions, check_names, experiment, fit_once, unique
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report, Table

FORCES = (0.9, 8.0)
PAPER = {"lstm": (2.0e-2, 6.8e-2), "cornn": (2.0e-2, 9.8e-2), "unicornn": (2.2e-2, 3.1e-1)}
"""Table 7 of the UnICORNN paper: NRMSE at F = 0.9 and F = 8."""
LINEAR, MEAN = "linear map of the present state", "always the mean state"


@dataclass(frozen=True)
class Forecast:
    """The errors of one network at one force, with the error that the paper reports."""

    network: str
    force: float
    nrmse: float
    valid_nrmse: float
    parameters: int
    seconds: float
    paper: float | None


@experiment("lorenz96")
def run(
    *,
    epochs: PositiveInt = 6,
    forces: Sequence[float] = FORCES,
    networks: Sequence[str] = tuple(PAPER),
    batch_size: PositiveInt = 16,
    trajectories: PositiveInt = 128,
    window: PositiveInt = 100,
    **options: Unpack[SeedOptions],
) -> Report:
    """Forecasts of a chaotic system: LSTM, coRNN and UnICORNN at two forces.

    Args:
        epochs: Passes over the training trajectories.
        forces: The external forces.
        networks: Names of networks: lstm, cornn, unicornn.
        batch_size: Trajectories per batch.
        trajectories: Number of them in each split.
        window: Steps between updates while a trajectory is read; the state is carried over.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(epochs=6)

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021, table 7.
    """
    check_names("network of this experiment", networks, list(PAPER))
    forecasts: list[Forecast] = []
    baselines: dict[str, dict[float, float]] = {LINEAR: {}, MEAN: {}}
    for force in forces:
        task_options = {"force": force, "trajectories": trajectories}
        task = tasks.build("lorenz96", **task_options)
        baselines[MEAN][force], baselines[LINEAR][force] = task.chance.metric, _linear_map(task)
        steps = epochs * (task.count("train", batch_size) or 1)
        for name in networks:
            finished = fit_once(
                name,
                "lorenz96",
                model_options={},
                task_options=task_options,
                train={
                    "steps": steps,
                    "batch_size": batch_size,
                    "truncate": min(window, task.length),
                    "validate_every": max(1, steps // 3),
                },
                seed=options["seed"],
                out=options["out"],
            )
            result = finished.result
            assert result is not None
            forecasts.append(
                Forecast(
                    name,
                    force,
                    result["test"]["nrmse"],
                    result["valid"]["nrmse"],
                    finished.settings["model"]["parameters"],
                    result["seconds"],
                    PAPER[name][FORCES.index(force)] if force in FORCES else None,
                )
            )
            options["progress"](f"{name} at F = {force:g}")
    title = f"Test NRMSE, 25 readings ahead; {epochs} epochs, seed {options['seed']}."
    return Report(
        forecasts,
        [_table(title, forecasts, baselines, forces)],
        {"lorenz96": lambda: _figure(forecasts, baselines, forces)},
        {"mean_state": baselines[MEAN], "linear_map": baselines[LINEAR]},
    )


def _table(
    title: str,
    forecasts: Sequence[Forecast],
    baselines: Mapping[str, Mapping[float, float]],
    forces: Sequence[float],
) -> Table:
    header = [cell for force in forces for cell in (f"F = {force:g}", "paper")]
    rows = []
    for name in unique(forecast.network for forecast in forecasts):
        by_force = [forecast for forecast in forecasts if forecast.network == name]
        cells = [
            cell
            for forecast in by_force
            for cell in (
                f"{forecast.nrmse:.1e}",
                "" if forecast.paper is None else f"{forecast.paper:.1e}",
            )
        ]
        seconds = sum(forecast.seconds for forecast in by_force)
        rows.append((name, f"{by_force[0].parameters:,}", *cells, f"{seconds:.0f}"))
    for name, errors in baselines.items():
        cells = [cell for force in forces for cell in (f"{errors[force]:.1e}", "")]
        rows.append((name, "", *cells, ""))
    return Table(("", "parameters", *header, "seconds"), rows, title)


def _linear_map(task: Any) -> float:
    """Return the test NRMSE of the best linear map from the present state to the target."""
    splits = {name: task.batch(name, 0, task.sequences(name)) for name in ("train", "test")}
    rows = {
        name: torch.cat([batch.inputs, torch.ones_like(batch.inputs[..., :1])], -1).double()
        for name, batch in splits.items()
    }
    targets = splits["train"].targets.double().flatten(0, 1)
    weights = torch.linalg.lstsq(rows["train"].flatten(0, 1), targets).solution
    error, size = task.score(rows["test"] @ weights, splits["test"])
    return task.finish(error.item() / size)


def _figure(
    forecasts: Sequence[Forecast],
    baselines: Mapping[str, Mapping[float, float]],
    forces: Sequence[float],
) -> Any:
    figure, all_axes = panels(4.2 * len(forces), 3.8, columns=len(forces))
    for axes, force in zip(all_axes, forces, strict=True):
        entries = [forecast for forecast in forecasts if forecast.force == force]
        errors = [forecast.nrmse for forecast in entries]
        axes.plot(range(len(entries)), errors, "o", color=colour(0), label="here")
        paper = [(i, entry.paper) for i, entry in enumerate(entries) if entry.paper is not None]
        if paper:
            axes.plot(*zip(*paper, strict=True), "D", color=colour(1), label="paper")
        for dash, (name, values) in zip(("--", ":"), baselines.items(), strict=True):
            axes.axhline(values[force], color="black", linewidth=1, linestyle=dash, label=name)
        axes.set_xticks(range(len(entries)), [forecast.network for forecast in entries])
        axes.set_xlim(-0.5, len(entries) - 0.5)
        title = f"F = {force:g}: {'regular' if force < 1 else 'chaotic'} motion"
        label(axes, "", "test NRMSE (lower is better)", title, log="y")
    return figure
