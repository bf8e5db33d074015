"""`undamped predict RUN`: answers of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from undamped._base.errors import UndampedError
    from undamped.lab.tasks.characters import Characters
    from undamped.lab.training.run import Run
    from undamped.models.sequence_model import SequenceModel
    from undamped.models.task_model import TaskModel


def predict(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="For a run on recordings: a file or folder such as it was trained on; a forecast "
            "goes on from its end, and without it from the end of its own recordings. For a "
            "system that moves: a file of states, whose first rows are followed. For others: "
            "a .npy file, (time, features) or (sequences, time, features), or a .csv file with one "
            "row per time step. Without it, the test part of the run's task."
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="For character models: the text to go on from.")
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="How many characters to add.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=1e-3, help="Below 1 the likeliest are preferred.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drawing.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the answers to this CSV file.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="For forecasts: draw what is to come, with its band, into this .png or .svg file. "
            "For latent models on recordings: mean and band through the first series."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Answer with a trained model: on the test part, on a file, or by going on with a text.

    Example: `undamped predict runs/digits-unicornn-1`
    """
    from undamped._base.errors import OptionError
    from undamped.lab.training.run import Run
    from undamped.models.physics.state_model import StateModel
    from undamped.models.relational.base import RelationalModel
    from undamped.models.sequence_model import SequenceModel

    opened = Run.open(run)
    model, preparation = opened.model(), opened.preparation()
    if preparation is not None:
        if prompt is not None:
            raise _no_text(opened)
        from undamped.lab.cli.predict_recordings import answer_recordings

        answer_recordings(opened, model, preparation, data, out, as_json, picture)
        return
    if picture is not None:
        raise OptionError(
            f"--picture: expected a run on recordings, got one of "
            f"'{opened.settings['task']['name']}'. The run's page has the picture of its task."
        )
    if isinstance(model, StateModel) and data is not None:
        if prompt is not None:
            raise _no_text(opened)
        from undamped.lab.cli.predict_trajectories import follow_file

        follow_file(opened, model, data, out, as_json)
        return
    if out is not None:
        raise OptionError(
            f"--out: expected a run on recordings, got one of '{opened.settings['task']['name']}'. "
            "Use --json and a redirection."
        )
    task = opened.task()
    if task.continues_text and isinstance(model, SequenceModel):
        text = cast("Characters", task)  # or whatever else has a text, an encode and a decode
        start = prompt or str(text.text)[:1]
        _continue(model, text, start, length, temperature, seed, as_json)
    elif prompt is not None:
        raise _no_text(opened)
    elif data is None:
        _answer_test(opened, model, as_json)
    elif isinstance(model, SequenceModel):
        _answer_file(model, task.answer, data, as_json)
    elif isinstance(model, RelationalModel):
        from undamped.lab.cli.predict_pictures import answer_pictures

        answer_pictures(opened, model, data, as_json)
    else:
        raise OptionError(
            f"{data}: expected a run whose model reads sequences, got one that reads single "
            "vectors. Load it with undamped.lab.training.Run and call its model."
        )


def _no_text(run: Run) -> UndampedError:
    from undamped._base.errors import OptionError

    return OptionError(
        f"--prompt: expected a run of a character model, got one of "
        f"'{run.settings['task']['name']}'. Leave --prompt out."
    )


def _continue(
    model: SequenceModel,
    task: Characters,
    prompt: str,
    length: int,
    temperature: float,
    seed: int,
    as_json: bool,
) -> None:
    import torch

    from undamped.lab.cli.screen import console, print_json

    generator = torch.Generator().manual_seed(seed)
    drawn = model.generate(
        task.encode(prompt).unsqueeze(1), length, temperature=temperature, generator=generator
    )
    text = task.decode(drawn[:, 0])
    if as_json:
        print_json({"prompt": prompt, "text": text})
    else:
        from rich.text import Text

        console().print(Text(prompt, style="bold") + Text(text), soft_wrap=True)


def _answer_test(run: Run, model: TaskModel, as_json: bool) -> None:
    import torch

    from undamped.lab.cli.screen import console, metric_name, number, print_json
    from undamped.lab.training.evaluation import evaluate

    task, size = run.task(), run.train_options().batch_size
    scores = evaluate(model, task, "test", size)
    batch = task.batch("test", 0, size)
    with torch.no_grad():
        prediction = model(batch)
    if task.answer == "density":  # a density: there is no truth to stand beside
        shown = [
            {"point": point.tolist(), "log_density": value.item()}
            for point, value in zip(batch.inputs[:10], prediction[:10], strict=True)
        ]
        guess, line = task.chance.guess, _density_line
    else:
        answers, truth = _readable(prediction, task.answer), batch.targets
        if task.readout == "every" or task.answer == "trajectory":
            answers, truth = answers.transpose(0, 1), truth.transpose(0, 1)
        shown = [
            {"answer": answers[i].tolist(), "truth": truth[i].tolist()}
            for i in range(min(10, len(truth)))
        ]
        guess, line = "a guess", _answer_line
    if as_json:
        print_json({"loss": scores.loss, task.metric: scores.metric, "examples": shown})
        return
    screen = console()
    screen.print(
        f"{metric_name(task)} on the test part: [bold]{number(scores.metric, task)}[/], "
        f"{guess} has {number(task.chance.metric, task)}"
    )
    if batch.targets.dim() > 3:
        screen.print(f"Answers are pictures: 'undamped diagnose {run.path}' draws them.")
        return
    for example in shown:
        screen.print(line(example))


def _answer_line(example: dict[str, Any]) -> str:
    answer, true = _end(example["answer"]), _end(example["truth"])
    return f"  {'✓' if answer == true else ' '} answer {answer}   truth {true}"


def _density_line(example: dict[str, Any]) -> str:
    return f"  log-density {example['log_density']:.3f} at {_end(example['point'])}"


def _end(values: Any) -> str:
    if not isinstance(values, list):
        return str(values)
    written = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in values[-10:]]
    return " ".join(written)


def _readable(prediction: Tensor, answer: str) -> Tensor:
    return prediction.argmax(-1) if answer == "class" else prediction


def _answer_file(model: SequenceModel, answer: str, path: Path, as_json: bool) -> None:
    import torch

    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.recordings.sequences import read_sequences

    symbols = model.input_kind == "symbols"
    inputs = torch.from_numpy(read_sequences(path, model.input_size, symbols=symbols))
    with torch.no_grad():
        prediction = model(inputs)
    answers = _readable(prediction, answer)
    if model.readout == "every":
        answers = answers.transpose(0, 1)
    rows: list[dict[str, Any]] = []
    for index, said in enumerate(answers):
        row: dict[str, Any] = {"sequence": index, "answer": said.squeeze(-1).tolist()}
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
