"""Predictions for sequences, image sequences and trajectories in a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.options import options_in
from undamped.lab.cli.commands.runs import Predict
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.data.images.sequences import read_image_sequences
from undamped.lab.data.recordings.read import read_sequences
from undamped.lab.files import write_text
from undamped.lab.tasks.physics.scores import relative_error
from undamped.lab.tasks.physics.trajectory_columns import TrajectoryColumns
from undamped.lab.tasks.physics.trajectory_files import read_trajectories
from undamped.lab.training.run import Run
from undamped.models.physics.state_model import StateModel
from undamped.models.task_model import TaskModel

IMAGE_BATCH = 256


def readable(prediction: Tensor, answer: str) -> Tensor:
    """Return predictions in readable form: the most probable class, or the values."""
    return prediction.argmax(-1) if answer == "class" else prediction


def predict_sequences(run: Run, model: TaskModel, request: Predict) -> None:
    """Print the predictions for the sequences of a .npy or .csv file."""
    assert request.data is not None
    shape, answer = run.shape, run.task().answer
    symbols = shape.input_kind == "symbols"
    inputs = torch.from_numpy(read_sequences(request.data, shape.input_size, symbols=symbols))
    with torch.no_grad():
        prediction = model(inputs)
    answers = readable(prediction, answer)
    if shape.readout == "every":
        answers = answers.transpose(0, 1)
    rows: list[dict[str, Any]] = []
    for index, values in enumerate(answers):
        row: dict[str, Any] = {"sequence": index, "answer": values.squeeze(-1).tolist()}
        if answer == "class" and shape.readout != "every":
            row["probabilities"] = torch.softmax(prediction[index], -1).tolist()
        rows.append(row)
    if request.as_json:
        print_json(rows)
        return
    for row in rows:
        highest = max(row.get("probabilities", [0.0]))
        note = f"  (probability {highest:.2f})" if "probabilities" in row else ""
        print_lines(f"sequence {row['sequence']}: {row['answer']}{note}")


def predict_images(run: Run, model: TaskModel, request: Predict) -> None:
    """Print the class of every image sequence of a file or folder, with its probability.

    The data are folder/sequence/01.png, 02.png, …, or an .npz file with `pictures`.
    """
    assert request.data is not None
    data = read_image_sequences(request.data, labelled=False)
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
    if request.as_json:
        print_json(answers)
        return
    for answer, row in zip(answers, rows, strict=True):
        print_lines(f"{answer['sequence']}: {answer['answer']}  (probability {max(row):.2f})")


def predict_trajectories(run: Run, model: StateModel, request: Predict) -> None:
    """Predict a trajectory from the first state of every recording of a file, at its times."""
    recordings = read_trajectories(str(request.data), _columns(run, model))
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
    if request.out is not None:
        _write(request.out, rows, names)
    if request.as_json:
        print_json({"names": list(names), "recordings": rows})
        return
    for row in rows:
        end = ", ".join(f"{n} {v:.4g}" for n, v in zip(names, row["states"][-1], strict=True))
        print_lines(
            f"recording {row['recording']}: relative error {row['relative_error']:.3g}; at "
            f"t = {row['times'][-1]:.4g}: {end}"
        )
    if request.out is not None:
        print_lines(f"States: {request.out}")


def _columns(run: Run, model: StateModel) -> dict[str, Any]:
    """Return the roles of the columns: as in training, or by the names of the state space."""
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
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["recording", "time", *names])
    for row in rows:
        for time, state in zip(row["times"], row["states"], strict=True):
            table.writerow([row["recording"], time, *state])
    write_text(out, text.getvalue())
