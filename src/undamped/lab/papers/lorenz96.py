"""Where a chaotic system will be: UNI table 7, LSTM, coRNN and UnICORNN at two forces.

All three have about 9,000 parameters, as in the paper. The paper trains for 250 + 250 epochs with
settings from a random search that it does not print; here the settings were chosen on the
validation part with a small one, and training is short. Two answers that need no training over
time stand beside them: the mean state, and a linear map of the present state alone.

    undamped reproduce lorenz96 epochs=6 --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from undamped._base.options import NonNegativeInt, PositiveInt, unknown_name
from undamped._base.registry import experiments

FORCES = (0.9, 8.0)
PRINTED = {
    "lstm": (2.0e-2, 6.8e-2),
    "cornn": (2.0e-2, 9.8e-2),
    "unicornn": (2.2e-2, 3.1e-1),
}
"""Table 7 of the UnICORNN paper: NRMSE at F = 0.9 and F = 8."""
NETWORKS = tuple(PRINTED)
WINDOW = 100
"""Steps between updates while reading a trajectory; the state is carried on."""


@dataclass(frozen=True)
class Forecast:
    """How well one network predicts at one force."""

    network: str
    force: float
    nrmse: float
    valid_nrmse: float
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Lorenz96Experiment:
    """All networks at all forces, beside the paper and beside answers without a network."""

    epochs: int
    seed: int
    forecasts: tuple[Forecast, ...]
    mean_state: dict[float, float]
    linear: dict[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "epochs": self.epochs,
            "seed": self.seed,
            "networks": [vars(one) | {"paper": _printed(one)} for one in self.forecasts],
            "mean_state": {str(force): value for force, value in self.mean_state.items()},
            "linear_map": {str(force): value for force, value in self.linear.items()},
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        forces = list(self.mean_state)
        heads = [word for force in forces for word in (f"F = {force:g}", "paper")]
        lines = [
            f"Test NRMSE, 25 readings ahead; {self.epochs} epochs, seed {self.seed}.",
            "",
            f"| | parameters | {' | '.join(heads)} | seconds |",
            "|---|---:|" + "---:|" * (len(heads) + 1),
        ]
        for name in dict.fromkeys(one.network for one in self.forecasts):
            own = {one.force: one for one in self.forecasts if one.network == name}
            cells = []
            for force in forces:
                printed = _printed(own[force])
                cells += [f"{own[force].nrmse:.1e}", "" if printed is None else f"{printed:.1e}"]
            seconds = sum(one.seconds for one in own.values())
            first = next(iter(own.values()))
            lines.append(f"| {name} | {first.parameters:,} | {' | '.join(cells)} | {seconds:.0f} |")
        for title, values in (
            ("linear map of the present state", self.linear),
            ("always the mean state", self.mean_state),
        ):
            cells = [cell for force in forces for cell in (f"{values[force]:.1e}", "")]
            lines.append(f"| {title} | | {' | '.join(cells)} | |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: our errors, the paper's, and those without a network."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        forces = list(self.mean_state)
        figure = Figure(figsize=(4.2 * len(forces), 3.8), layout="constrained")
        panels = figure.subplots(1, len(forces), squeeze=False)[0]
        for axes, force in zip(panels, forces, strict=True):
            own = [one for one in self.forecasts if one.force == force]
            places = range(len(own))
            axes.plot(places, [o.nrmse for o in own], "o", color=PALETTE[0], label="here")
            printed = [(i, _printed(o)) for i, o in enumerate(own) if _printed(o) is not None]
            if printed:
                axes.plot(*zip(*printed, strict=True), "D", color=PALETTE[1], label="paper")
            for value, style, title in (
                (self.linear[force], "--", "linear map of the present"),
                (self.mean_state[force], ":", "mean state"),
            ):
                axes.axhline(value, color="black", linewidth=1, linestyle=style, label=title)
            axes.set_yscale("log")
            axes.set_xticks(list(places), [one.network for one in own])
            axes.set_xlim(-0.5, len(own) - 0.5)
            axes.set_ylabel("test NRMSE (lower is better)")
            kind = "regular" if force < 1 else "chaotic"
            axes.set_title(f"F = {force:g}: {kind} motion", fontsize=10)
            axes.legend(fontsize="x-small")
        return {"lorenz96": figure}


@experiments.register("lorenz96")
def run(
    *,
    epochs: PositiveInt = 6,
    forces: Sequence[float] = FORCES,
    networks: Sequence[str] = NETWORKS,
    batch_size: PositiveInt = 16,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> Lorenz96Experiment:
    """Where a chaotic system will be: LSTM, coRNN and UnICORNN at two forces.

    Args:
        epochs: Passes over the 128 training trajectories.
        forces: The external forces.
        networks: Which ones, of lstm, cornn and unicornn.
        batch_size: Trajectories read side by side.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Called with a network's name when it is done, for a progress bar.

    Example:
        >>> result = run(epochs=6)

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021, table 7.
    """
    from undamped._base.registry import tasks
    from undamped.lab.training import fit

    for name in networks:
        if name not in PRINTED:
            raise unknown_name("network of this experiment", name, list(PRINTED))
    forecasts, mean_state, linear = [], {}, {}
    for force in forces:
        task = tasks.build("lorenz96", force=force)
        mean_state[force], linear[force] = task.chance.metric, _linear_map(task)
        steps = epochs * (task.count("train", batch_size) or 1)
        for name in networks:
            finished = fit(
                name,
                "lorenz96",
                task_options={"force": force},
                train={
                    "steps": steps,
                    "batch_size": batch_size,
                    "truncate": min(WINDOW, task.length),
                    "validate_every": max(1, steps // 3),
                },
                seed=seed,
                out=out,
                progress=False,
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
                )
            )
            if tick is not None:
                tick(f"{name} at F = {force:g}")
    return Lorenz96Experiment(epochs, seed, tuple(forecasts), mean_state, linear)


def _printed(one: Forecast) -> float | None:
    return PRINTED[one.network][FORCES.index(one.force)] if one.force in FORCES else None


def _linear_map(task: Any) -> float:
    """Return the test NRMSE of the best linear map from the present state to the answer."""
    import torch

    parts = {name: task.batch(name, 0, task.sequences(name)) for name in ("train", "test")}
    rows = {
        name: torch.cat([batch.inputs, torch.ones_like(batch.inputs[..., :1])], -1).double()
        for name, batch in parts.items()
    }
    answers = parts["train"].targets.double().flatten(0, 1)
    weights = torch.linalg.lstsq(rows["train"].flatten(0, 1), answers).solution
    error, size = task.score(rows["test"] @ weights, parts["test"])
    return task.finish(error.item() / size)
