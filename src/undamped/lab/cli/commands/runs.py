"""Commands that use and analyse a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from undamped.lab.cli.commands import AsJson, RunFolder, command, complete_name

Instruments = Annotated[
    list[str] | None,
    typer.Option(
        help="Run only this instrument; can be repeated. 'undamped list instruments' shows all."
    ),
]


@command("predict")
class Predict(NamedTuple):
    """Predict with a trained model: on the test split, on a file, or by continuing a text.

    Example: `undamped predict runs/digits-unicornn-1`
    """

    run: RunFolder
    data: Annotated[
        Path | None,
        typer.Argument(
            help="For a run on recordings: a file or folder in the format it was trained on; a "
            "forecast continues it, or by default the training recordings. For a physical "
            "system: a file of states; trajectories start from the first row of each recording. "
            "For others: a .npy file, (time, features) or (sequences, time, features), or a .csv "
            "file with one row per time step. By default the test split of the run's task."
        ),
    ] = None
    prompt: Annotated[
        str | None, typer.Option(help="For character models: the text to continue.")
    ] = None
    length: Annotated[int, typer.Option(min=1, help="Number of characters to generate.")] = 200
    temperature: Annotated[
        float, typer.Option(min=1e-3, help="Sampling temperature; below 1 favours likely text.")
    ] = 1.0
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 0
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this CSV file.")] = None
    figure: Annotated[
        Path | None,
        typer.Option(
            help="For forecasts: plot the forecast with its prediction interval to this .png or "
            ".svg file. For latent models on recordings: mean and interval of the first series."
        ),
    ] = None
    as_json: AsJson = False


@command("stream")
class Stream(NamedTuple):
    """Read samples from standard input and answer line by line, in constant memory.

    A sample is a line of comma-separated numbers or of JSON; the first line may name the
    channels. Character models read plain text and predict the next character.

    Example: `sensor | undamped stream runs/recordings-unicornn-1 --json`
    """

    run: RunFolder
    every: Annotated[
        int, typer.Option(min=1, help="Number of samples between answers; the last is answered.")
    ] = 1
    time: Annotated[
        str | None,
        typer.Option(
            help="For models trained with timestamps: the column with the times, by default that "
            "of the training data."
        ),
    ] = None
    skip: Annotated[
        bool, typer.Option("--skip", help="Report an invalid line and continue with the next.")
    ] = False
    state: Annotated[
        Path | None,
        typer.Option(
            help="Continue from the state in this file if it exists, and write the state to it at "
            "the end."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per answer.")] = False


@command("export")
class Export(NamedTuple):
    """Write a trained model as a file that needs neither undamped nor PyTorch.

    The file takes raw samples, in batches of any size and length. Its outputs are compared with
    PyTorch's before it is written.

    Example: `undamped export runs/digits-unicornn-1 --onnx --step`
    """

    run: RunFolder
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX, for onnxruntime and other runtimes.")
    ] = False
    out: Annotated[
        Path | None, typer.Option(help="The file; by default model.onnx in the run folder.")
    ] = None
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="Write a second file, .step.onnx, which maps one sample and a state to an answer "
            "and the next state.",
        ),
    ] = False
    as_json: AsJson = False


@command("animate")
class Animate(NamedTuple):
    """Animate a learned system next to the true one, from an initial state of the test split.

    Example: `undamped animate runs/pendulum-hnn-1 --out pendulum.gif`
    """

    runs: Annotated[
        list[Path], typer.Argument(help="Run folders of one physical system; each gets a panel.")
    ]
    out: Annotated[
        Path, typer.Option(help="The file: .gif, or .html, which browsers show without a server.")
    ] = Path("motion.html")
    start: Annotated[int, typer.Option(min=0, help="Index of the initial state in the test.")] = 0
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of the animation.")] = 8.0
    as_json: AsJson = False


@command("diagnose", seeded=True)
class Diagnose(NamedTuple):
    """Measure how far gradients and memory reach, check promises, and suggest changes.

    Example: `undamped diagnose unicornn task.delay=500`
    """

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN | [TASK] MODEL [KEY=VALUE]...",
            autocompletion=complete_name,
            help="A run folder, or a model with random weights by its name, with settings such as "
            "task.delay=500 model.hidden_size=64.",
        ),
    ]
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page; by default report.html in the run folder, diagnosis.html there with "
            "--instrument or if report.html shows more, and ./diagnosis.html for a model without "
            "a run."
        ),
    ] = None
    steps: Annotated[int, typer.Option(min=10, help="Length of the input if there is no task.")] = (
        1000
    )
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True
    instrument: Instruments = None
    as_json: AsJson = False


@command("report")
class Report(NamedTuple):
    """Write one page that compares runs: verdict, curves, retention, gradient flow, cost.

    Example: `undamped report runs/copy-unicornn-1 runs/copy-lstm-1`
    """

    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run folders.")]
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page; by default report.html in the folder of a single run "
            "(diagnosis.html with --instrument, or if report.html shows more), and ./report.html "
            "for several."
        ),
    ] = None
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Plot the validation curves, or the result of one --instrument, to this .png or "
            ".svg file, and write no page."
        ),
    ] = None
    instrument: Instruments = None
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = False
    as_json: AsJson = False


@command("runs")
class Runs(NamedTuple):
    """List the runs below a folder, with their scores.

    Example: `undamped runs`
    """

    folder: Annotated[Path, typer.Argument(help="The folder.")] = Path("runs")
    as_json: AsJson = False


@command("open", "runs.open_page")
class Open(NamedTuple):
    """Open the page of a run in a browser, and print its path.

    Example: `undamped open runs/copy-unicornn-1`
    """

    run: RunFolder


@command("env", "runs.env")
class Env(NamedTuple):
    """Print the versions and the machine, for a bug report.

    Example: `undamped env`
    """

    as_json: AsJson = False
