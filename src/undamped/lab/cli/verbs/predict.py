"""`undamped predict RUN`: predictions of a trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from rich.text import Text

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Predict
from undamped.lab.cli.predict_files import (
    predict_images,
    predict_sequences,
    predict_trajectories,
    readable,
)
from undamped.lab.cli.predict_recordings import predict_recordings
from undamped.lab.cli.screen import console, metric_name, number, print_json
from undamped.lab.tasks import optional
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel

EXAMPLES = 10


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
