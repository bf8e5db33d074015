"""Where states of a file lead: trajectories from the first row of every recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.training.run import Run
    from undamped.models.physics.state_model import StateModel


def follow_file(run: Run, model: StateModel, data: Path, out: Path | None, as_json: bool) -> None:
    """Follow every recording of a file from its first state, at the times it has.

    Args:
        run: The run.
        model: Its model.
        data: The file.
        out: A CSV file for the states, if they are to be written.
        as_json: Whether to print JSON.
    """
    import torch

    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.tasks.physics.own_trajectories import read_trajectories
    from undamped.lab.tasks.physics.scores import relative_error

    own = read_trajectories(str(data), _columns(run, model))
    names, dtype = model.space.names, next(model.parameters()).dtype
    rows: list[dict[str, Any]] = []
    for number, true in enumerate(own.states):
        given = own.given(number, 0).to(dtype).unsqueeze(0)
        z, u = given[:, : model.space.size], given[:, model.space.size :]
        with torch.no_grad():
            times = torch.from_numpy(own.times[number])
            path = model.trajectory(z, times, u if u.shape[1] else None, on_failure="return")[:, 0]
        error = relative_error(path, true, model.space)
        rows.append(
            {
                "recording": own.ids[number],
                "relative_error": error[1:].log().mean().exp().item() if len(error) > 1 else 0.0,
                "times": times.tolist(),
                "states": path.tolist(),
            }
        )
    if out is not None:
        _write(out, rows, names)
    if as_json:
        print_json({"names": list(names), "recordings": rows})
        return
    screen = console()
    for row in rows:
        end = ", ".join(f"{n} {v:.4g}" for n, v in zip(names, row["states"][-1], strict=True))
        screen.print(
            f"recording {row['recording']}: relative error {row['relative_error']:.3g}; at "
            f"t = {row['times'][-1]:.4g}: {end}",
            soft_wrap=True,
            markup=False,
        )
    if out is not None:
        screen.print(f"The states: {out}", soft_wrap=True, markup=False)


def _columns(run: Run, model: StateModel) -> dict[str, Any]:
    """Return which column is what: as in training, or by the names of the state space."""
    from undamped._base.options import options_in
    from undamped.lab.tasks.physics.own_trajectories import OwnColumns

    declared = {name: option.default for name, option in options_in(OwnColumns).items()}
    entry, space = run.settings["task"], model.space
    if entry["name"] == "trajectories":
        return {**declared, **{k: v for k, v in entry["options"].items() if k in declared}}
    partners = "velocities" if "velocity" in space.kinds else "momenta"

    def named(*kinds: Any) -> tuple[str, ...]:
        return tuple(space.names[k] for k in space.indices(*kinds))

    return {
        **declared,
        "positions": named("position", "angle"),
        partners: named("momentum", "velocity"),
        "angles": named("angle") or None,
        "inputs": space.inputs or None,
    }


def _write(out: Path, rows: list[dict[str, Any]], names: Any) -> None:
    import csv
    import io

    from undamped._base.files import write_text

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["recording", "time", *names])
    for row in rows:
        for time, state in zip(row["times"], row["states"], strict=True):
            table.writerow([row["recording"], time, *state])
    write_text(out, text.getvalue())
