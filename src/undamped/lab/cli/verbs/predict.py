"""`undamped predict RUN`: predictions of a trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.text import Text
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.options import options_in
from undamped.lab.cli.commands.runs import Predict
from undamped.lab.cli.predict_recordings import csv_text, predict_recordings
from undamped.lab.cli.screen import console, metric_name, number, print_json, print_lines
from undamped.lab.data.images import read_image_sequences
from undamped.lab.data.recordings.read import read_sequences
from undamped.lab.files import write_text
from undamped.lab.tasks import optional
from undamped.lab.tasks.physics.scores import relative_error
from undamped.lab.tasks.physics.trajectory_files import TrajectoryColumns, read_trajectories
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.run import Run
from undamped.models.physics.state_model import StateModel
from undamped.models.task_model import TaskModel

IMAGE_BATCH = 256

EXAMPLES = 10
# What a file holds, by the kind of a task's inputs and whether they are sequences.
_KINDS_OF_FILES = {
    ("states", False): "trajectories",
    ("pictures", True): "images",
    ("vectors", True): "sequences",
    ("symbols", True): "sequences",
    ("pixels", True): "sequences",
}
_REMEDIES = {
    "prompt": "needs a run of a character model",
    "figure": "needs a run on recordings; 'undamped diagnose' plots other tasks",
    "out": "needs a run on recordings or trajectories; use --json and a redirection",
}


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
        steps = [
            (row["recording"], time, *state)
            for row in rows
            for time, state in zip(row["times"], row["states"], strict=True)
        ]
        write_text(request.out, csv_text(["recording", "time", *names], steps))
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


class Answerer(NamedTuple):
    """A way to predict.

    Args:
        predict: The function.
        options: The options besides those of all commands that it accepts.
    """

    predict: Callable[[Run, Any, Predict], None]
    options: tuple[str, ...] = ()


def predict(options: Predict) -> None:
    """Predict for the test split of a run, for a file, or by continuing a text."""
    run = Run.open(options.run)
    model = run.model()
    answerer = _answerer(run, model, options)
    for name, remedy in _REMEDIES.items():
        if getattr(options, name) is not None and name not in answerer.options:
            task = run.settings["task"]["name"]
            raise OptionError(f"--{name} {remedy}, got a run of '{task}'.")
    answerer.predict(run, model, options)


def _answerer(run: Run, model: TaskModel, request: Predict) -> Answerer:
    """Return the way to predict that fits the task of a run and the request."""
    if run.preparation() is not None:
        return _ANSWERERS["recordings"]
    if hasattr(model, "generate") and optional.continues_text(run.task()):
        return _ANSWERERS["text"]
    if request.data is None:
        return _ANSWERERS["test"]
    shape = run.shape
    kind = _KINDS_OF_FILES.get((shape.input_kind, shape.sequential))
    if kind is None or (shape.sequential and shape.answer == "trajectory"):
        raise OptionError(
            f"{request.data}: the model of this run does not read files. Load it with "
            "undamped.lab.training.Run and call its model."
        )
    return _ANSWERERS[kind]


def _continue_text(run: Run, model: Any, request: Predict) -> None:
    task: Any = run.task()  # a task with text, encode and decode, such as `Characters`
    prompt = request.prompt or str(task.text)[:1]
    symbols = model.generate(
        task.encode(prompt).unsqueeze(1),
        request.length,
        temperature=request.temperature,
        generator=torch.Generator().manual_seed(request.seed),
    )
    text = task.decode(symbols[:, 0])
    if request.as_json:
        print_json({"prompt": prompt, "text": text})
    else:
        console().print(Text(prompt, style="bold") + Text(text), soft_wrap=True)


def _predict_test(run: Run, model: TaskModel, request: Predict) -> None:
    """Print the score on the test split and examples."""
    task, size = run.task(), run.train_options().batch_size
    scores = evaluate(model, task, "test", size)
    batch = task.batch("test", 0, size)
    with torch.no_grad():
        prediction = model(batch)
    if task.answer == "density":  # there are no true values to compare with
        examples = [
            {"point": point.tolist(), "log_density": value.item()}
            for point, value in zip(batch.inputs[:EXAMPLES], prediction[:EXAMPLES], strict=True)
        ]
        baseline, line = task.chance.rule, _density_line
    else:
        answers, truth = readable(prediction, task.answer), batch.targets
        if task.readout == "every" or task.answer == "trajectory":
            answers, truth = answers.transpose(0, 1), truth.transpose(0, 1)
        examples = [
            {"answer": answers[i].tolist(), "truth": truth[i].tolist()}
            for i in range(min(EXAMPLES, len(truth)))
        ]
        baseline, line = "the naive baseline", _answer_line
    if request.as_json:
        print_json({"loss": scores.loss, task.metric: scores.metric, "examples": examples})
        return
    screen = console()
    screen.print(
        f"{metric_name(task)} on the test split: [bold]{number(scores.metric, task)}[/], "
        f"{baseline} has {number(task.chance.metric, task)}"
    )
    if batch.targets.dim() > 3:
        screen.print(f"Predictions are images: 'undamped diagnose {run.path}' plots them.")
        return
    for example in examples:
        screen.print(line(example))


def _answer_line(example: dict[str, Any]) -> str:
    answer, truth = _last_values(example["answer"]), _last_values(example["truth"])
    return f"  {'✓' if answer == truth else ' '} predicted {answer}   true {truth}"


def _density_line(example: dict[str, Any]) -> str:
    return f"  log-density {example['log_density']:.3f} at {_last_values(example['point'])}"


def _last_values(values: Any) -> str:
    if not isinstance(values, list):
        return str(values)
    return " ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values[-10:])


_ANSWERERS = {
    "recordings": Answerer(predict_recordings, ("figure", "out")),
    "trajectories": Answerer(predict_trajectories, ("out",)),
    "text": Answerer(_continue_text, ("prompt",)),
    "test": Answerer(_predict_test),
    "sequences": Answerer(predict_sequences),
    "images": Answerer(predict_images),
}
