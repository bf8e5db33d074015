"""Predictions for sequences, image sequences and trajectories in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.training.run import Run
    from undamped.models.physics.state_model import StateModel
    from undamped.models.relational.base import RelationalModel
    from undamped.models.sequence_model import SequenceModel

IMAGE_BATCH = 256


def predict_sequences(model: SequenceModel, answer: str, path: Path, as_json: bool) -> None:
    """Print the predictions for the sequences of a .npy or .csv file.

    Args:
        model: The model.
        answer: The kind of prediction, such as "class".
        path: The file.
        as_json: Whether to print JSON for a script.
    """
    import torch

    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.cli.verbs.predict import readable
    from undamped.lab.data.recordings.read import read_sequences

    symbols = model.input_kind == "symbols"
    inputs = torch.from_numpy(read_sequences(path, model.input_size, symbols=symbols))
    with torch.no_grad():
        prediction = model(inputs)
    answers = readable(prediction, answer)
    if model.readout == "every":
        answers = answers.transpose(0, 1)
    rows: list[dict[str, Any]] = []
    for index, values in enumerate(answers):
        row: dict[str, Any] = {"sequence": index, "answer": values.squeeze(-1).tolist()}
        if answer == "class" and model.readout != "every":
            row["probabilities"] = torch.softmax(prediction[index], -1).tolist()
        rows.append(row)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        line = f"sequence {row['sequence']}: {row['answer']}"
        if "probabilities" in row:
            line += f"  (probability {max(row['probabilities']):.2f})"
        console().print(line, soft_wrap=True)


def predict_images(run: Run, model: RelationalModel, path: Path, as_json: bool) -> None:
    """Print the class of every image sequence, with its probability.

    Args:
        run: The run.
        model: Its model.
        path: folder/sequence/01.png, 02.png, …, or an .npz file with `pictures`.
        as_json: Whether to print JSON for a script.
    """
    import numpy as np
    import torch

    from undamped._base.contract import Batch
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.images.sequences import read_image_sequences

    data = read_image_sequences(path, labelled=False)
    images = torch.from_numpy(np.ascontiguousarray(data.images))
    rows = []
    with torch.no_grad():
        for start in range(0, len(data), IMAGE_BATCH):
            indices = torch.from_numpy(data.sequences[start : start + IMAGE_BATCH]).T
            rows += torch.softmax(model(Batch(indices, distinct=images)), -1).tolist()
    classes = run.settings.get("answer_names") or list(map(str, range(len(rows[0]))))
    answers = [
        {
            "sequence": name,
            "answer": classes[max(range(len(row)), key=row.__getitem__)],
            "probabilities": dict(zip(classes, row, strict=True)),
        }
        for name, row in zip(data.names, rows, strict=True)
    ]
    if as_json:
        print_json(answers)
        return
    for answer, row in zip(answers, rows, strict=True):
        line = f"{answer['sequence']}: {answer['answer']}  (probability {max(row):.2f})"
        console().print(line, soft_wrap=True, markup=False)


def predict_trajectories(
    run: Run, model: StateModel, data: Path, out: Path | None, as_json: bool
) -> None:
    """Predict a trajectory from the first state of every recording of a file, at its times.

    Args:
        run: The run.
        model: Its model.
        data: The file.
        out: A CSV file for the states, or None.
        as_json: Whether to print JSON.
    """
    import torch

    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.tasks.physics.scores import relative_error
    from undamped.lab.tasks.physics.trajectory_files import read_trajectories

    recordings = read_trajectories(str(data), _columns(run, model))
    names, dtype = model.space.names, next(model.parameters()).dtype
    rows: list[dict[str, Any]] = []
    for index, true in enumerate(recordings.states):
        row = recordings.state(index, 0).to(dtype).unsqueeze(0)
        z, u = row[:, : model.space.size], row[:, model.space.size :]
        with torch.no_grad():
            times = torch.from_numpy(recordings.times[index])
            path = model.trajectory(z, times, u if u.shape[1] else None, on_failure="return")[:, 0]
        error = relative_error(path, true, model.space)
        rows.append(
            {
                "recording": recordings.ids[index],
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
    """Return the roles of the columns: as in training, or by the names of the state space."""
    from undamped._base.options import options_in
    from undamped.lab.tasks.physics.trajectory_columns import TrajectoryColumns

    declared = {name: option.default for name, option in options_in(TrajectoryColumns).items()}
    entry, space = run.settings["task"], model.space
    if entry["name"] == "trajectories":
        return {**declared, **{k: v for k, v in entry["options"].items() if k in declared}}
    partners = "velocities" if "velocity" in space.kinds else "momenta"

    def names_of(*kinds: Any) -> tuple[str, ...]:
        return tuple(space.names[k] for k in space.indices(*kinds))

    return {
        **declared,
        "positions": names_of("position", "angle"),
        partners: names_of("momentum", "velocity"),
        "angles": names_of("angle") or None,
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
