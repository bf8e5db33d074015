"""`undamped predict RUN`: predictions of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from undamped.lab.tasks.characters import Characters
    from undamped.lab.training.run import Run
    from undamped.models.sequence_model import SequenceModel
    from undamped.models.task_model import TaskModel


def predict(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="For a run on recordings: a file or folder in the format it was trained on; a "
            "forecast continues it, or by default the training recordings. For a physical "
            "system: a file of states; trajectories start from the first row of each recording. "
            "For others: a .npy file, (time, features) or (sequences, time, features), or a .csv "
            "file with one row per time step. By default the test part of the run's task."
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="For character models: the text to continue.")
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Number of characters to generate.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=1e-3, help="Sampling temperature; below 1 favours likely text.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the predictions to this CSV file.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="For forecasts: plot the forecast with its prediction interval to this .png or "
            ".svg file. For latent models on recordings: mean and interval of the first series."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Predict with a trained model: on the test part, on a file, or by continuing a text.

    Example: `undamped predict runs/digits-unicornn-1`
    """
    from undamped.lab.training.run import Run

    opened = Run.open(run)
    model = opened.model()
    request = Request(data, prompt, length, temperature, seed, out, figure, as_json)
    kind = _kind_of_prediction(opened, model, request)
    _check_options(kind, request, opened.settings["task"]["name"])
    _PREDICTORS[kind](opened, model, request)


class Request(NamedTuple):
    """The options of the command."""

    data: Path | None
    prompt: str | None
    length: int
    temperature: float
    seed: int
    out: Path | None
    figure: Path | None
    as_json: bool


# The kinds of prediction that accept an option.
_ACCEPTED = {
    "prompt": ("text",),
    "figure": ("recordings",),
    "out": ("recordings", "trajectories"),
}


def _kind_of_prediction(run: Run, model: TaskModel, request: Request) -> str:
    """Return the kind of prediction, a key of `_PREDICTORS`."""
    from undamped._base.errors import OptionError
    from undamped.lab.tasks import optional
    from undamped.models.physics.state_model import StateModel
    from undamped.models.relational.base import RelationalModel
    from undamped.models.sequence_model import SequenceModel

    if run.preparation() is not None:
        return "recordings"
    if isinstance(model, StateModel) and request.data is not None:
        return "trajectories"
    if isinstance(model, SequenceModel) and optional.continues_text(run.task()):
        return "text"
    if request.data is None:
        return "test"
    if isinstance(model, SequenceModel):
        return "sequences"
    if isinstance(model, RelationalModel):
        return "images"
    raise OptionError(
        f"{request.data}: the model of this run reads single vectors, not sequences. Load it with "
        "undamped.lab.training.Run and call its model."
    )


def _check_options(kind: str, request: Request, task: str) -> None:
    """Raise an error for an option that this kind of prediction does not accept."""
    from undamped._base.errors import OptionError

    remedies = {
        "prompt": "needs a run of a character model",
        "figure": "needs a run on recordings; 'undamped diagnose' plots other tasks",
        "out": "needs a run on recordings or trajectories; use --json and a redirection",
    }
    for name, kinds in _ACCEPTED.items():
        if getattr(request, name) is not None and kind not in kinds:
            raise OptionError(f"--{name} {remedies[name]}, got a run of '{task}'.")


def _predict_recordings(run: Run, model: TaskModel, request: Request) -> None:
    from undamped.lab.cli.predict_recordings import predict_recordings

    preparation = run.preparation()
    assert preparation is not None
    data, out, figure = request.data, request.out, request.figure
    predict_recordings(run, model, preparation, data, out, request.as_json, figure)


def _predict_trajectories(run: Run, model: Any, request: Request) -> None:
    from undamped.lab.cli.predict_files import predict_trajectories

    assert request.data is not None
    predict_trajectories(run, model, request.data, request.out, request.as_json)


def _predict_images(run: Run, model: Any, request: Request) -> None:
    from undamped.lab.cli.predict_files import predict_images

    assert request.data is not None
    predict_images(run, model, request.data, request.as_json)


def _predict_sequences(run: Run, model: Any, request: Request) -> None:
    from undamped.lab.cli.predict_files import predict_sequences

    assert request.data is not None
    predict_sequences(model, run.task().answer, request.data, request.as_json)


def _continue_text(run: Run, model: Any, request: Request) -> None:
    import torch

    from undamped.lab.cli.screen import console, print_json

    task = cast("Characters", run.task())  # or another task with text, encode and decode
    prompt = request.prompt or str(task.text)[:1]
    generator = torch.Generator().manual_seed(request.seed)
    network: SequenceModel = model
    symbols = network.generate(
        task.encode(prompt).unsqueeze(1),
        request.length,
        temperature=request.temperature,
        generator=generator,
    )
    text = task.decode(symbols[:, 0])
    if request.as_json:
        print_json({"prompt": prompt, "text": text})
    else:
        from rich.text import Text

        console().print(Text(prompt, style="bold") + Text(text), soft_wrap=True)


def _predict_test(run: Run, model: TaskModel, request: Request) -> None:
    """Print the score on the test part and ten examples."""
    import torch

    from undamped.lab.cli.screen import console, metric_name, number, print_json
    from undamped.lab.training.evaluation import evaluate

    task, size = run.task(), run.train_options().batch_size
    scores = evaluate(model, task, "test", size)
    batch = task.batch("test", 0, size)
    with torch.no_grad():
        prediction = model(batch)
    if task.answer == "density":  # there are no true values to compare with
        examples = [
            {"point": point.tolist(), "log_density": value.item()}
            for point, value in zip(batch.inputs[:10], prediction[:10], strict=True)
        ]
        baseline, line = task.chance.rule, _density_line
    else:
        answers, truth = readable(prediction, task.answer), batch.targets
        if task.readout == "every" or task.answer == "trajectory":
            answers, truth = answers.transpose(0, 1), truth.transpose(0, 1)
        examples = [
            {"answer": answers[i].tolist(), "truth": truth[i].tolist()}
            for i in range(min(10, len(truth)))
        ]
        baseline, line = "the naive baseline", _answer_line
    if request.as_json:
        print_json({"loss": scores.loss, task.metric: scores.metric, "examples": examples})
        return
    screen = console()
    screen.print(
        f"{metric_name(task)} on the test part: [bold]{number(scores.metric, task)}[/], "
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


def readable(prediction: Tensor, answer: str) -> Tensor:
    """Return predictions as a person reads them: the most probable class, or the values."""
    return prediction.argmax(-1) if answer == "class" else prediction


_PREDICTORS: dict[str, Callable[[Run, Any, Request], None]] = {
    "recordings": _predict_recordings,
    "trajectories": _predict_trajectories,
    "text": _continue_text,
    "test": _predict_test,
    "sequences": _predict_sequences,
    "images": _predict_images,
}
