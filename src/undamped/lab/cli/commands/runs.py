"""Commands that use and analyse a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from undamped.lab.cli.commands import AsJson, RunFolder, command, complete_name

Libm = Literal["math", "none"]
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


@command("explain", "explain.explain_row")
class Explain(NamedTuple):
    """Explain one answer: which part of the recording decided it, and what happens without it.

    Contributions of samples are exact for a bank, and integrated gradients for a network. The
    deciding segment is found by deletion, for any model, and checked against other segments.

    Example: `undamped explain runs/recordings-bank-1 new.csv --row 3`
    """

    run: RunFolder
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A file or folder in the format that the run was trained on; by default the test "
            "split, for forecasts the training recordings."
        ),
    ] = None
    row: Annotated[
        str, typer.Option(help="The id of the recording, or its number, counted from 0.")
    ] = "0"
    out: Annotated[
        Path | None,
        typer.Option(
            help="The figure, a .png or .svg file; by default explanation.svg in the run folder."
        ),
    ] = None
    as_json: AsJson = False


@command("update", "update.update_run")
class Update(NamedTuple):
    """Update a trained model with further recordings, as a new run.

    A bank becomes the one that a fit to all recordings would give; a network continues from its
    weights. The command reports how the data have changed. The old run is not modified.

    Example: `undamped update runs/recordings-bank-1 new.csv`
    """

    run: RunFolder
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A file or folder in the format that the run was trained on, with targets. "
            "Without it, what a bank needs of its training recordings is stored in the run."
        ),
    ] = None
    lose: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="For networks: how much worse the score on the old validation split may become, "
            "as a fraction of the score.",
        ),
    ] = 0.02
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
    decide: Annotated[
        bool,
        typer.Option(
            "--decide",
            help="Answer 'too early' until a stopping rule allows a decision on the class, which "
            "then stays; an empty line begins a new series. The rule is chosen on validation data "
            "the first time, and stored beside the run.",
        ),
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per answer.")] = False


@command("export")
class Export(NamedTuple):
    """Write a trained model as a file that needs neither undamped nor PyTorch.

    ONNX takes raw samples, in batches of any size and length. C99 takes one sample at a time and
    needs no operating system, for microcontrollers; a page runs the same C in a browser. The
    answers of ONNX and C are compared with PyTorch's before a file is written.

    Example: `undamped export runs/digits-unicornn-1 --onnx --step`
    """

    run: RunFolder
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX, for onnxruntime and other runtimes.")
    ] = False
    c: Annotated[bool, typer.Option("--c", help="Write C99: NAME.h and NAME.c.")] = False
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Write one HTML file with the model as WebAssembly, which reads a CSV file, the "
            "mouse or the microphone; needs clang and lld.",
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file; by default model.onnx or model.html in the run folder. For C, a "
            "folder; by default the folder c in the run folder."
        ),
    ] = None
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="Write a second file, .step.onnx, which maps one sample and a state to an answer "
            "and the next state.",
        ),
    ] = False
    name: Annotated[
        str | None,
        typer.Option(help="For C: what all names start with; by default the name of the run."),
    ] = None
    libm: Annotated[
        Libm,
        typer.Option(help="For C: call tanhf, expf, … of math.h, or bring small ones (none)."),
    ] = "math"
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="For C: store matrices with 8 bits and a scale per row; the loss of score on "
            "validation data is printed.",
        ),
    ] = False
    integer: Annotated[
        bool,
        typer.Option(
            "--integer",
            help="For --int8: compute in integers of 32 bits, for cores without a floating-point "
            "unit; their ranges come from validation data.",
        ),
    ] = False
    lose: Annotated[
        float,
        typer.Option(
            help="For --int8: the most that may be lost, in points of accuracy, or in percent of "
            "any other score."
        ),
    ] = 1.0
    as_json: AsJson = False


@command("cost")
class Cost(NamedTuple):
    """Print what a trained model needs on a microcontroller, as C code.

    Flash, RAM, multiply-adds, cycles and samples per second are estimated by counting. For a
    Cortex-M target they are printed beside the sizes of the compiler and the instructions of the
    emulator where arm-none-eabi-gcc and qemu-system-arm are installed.

    Example: `undamped cost runs/digits-unicornn-1 --target cortex-m4`
    """

    run: RunFolder
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="cortex-m0+, cortex-m3, cortex-m4, cortex-m7, rv32imc, esp32 or x86; can be "
            "repeated. By default all, without compiler and emulator."
        ),
    ] = None
    clock: Annotated[
        float | None, typer.Option(help="The clock in MHz; by default a usual one.")
    ] = None
    flash: Annotated[
        int | None, typer.Option(min=0, help="Bytes of flash; a larger model is refused.")
    ] = None
    ram: Annotated[
        int | None, typer.Option(min=0, help="Bytes of RAM; a larger model is refused.")
    ] = None
    libm: Annotated[
        Libm, typer.Option(help="The functions of math.h, or small ones in the file (none).")
    ] = "none"
    int8: Annotated[bool, typer.Option("--int8", help="Matrices with 8 bits.")] = False
    integer: Annotated[
        bool, typer.Option("--integer", help="For --int8: arithmetic in integers of 32 bits.")
    ] = False
    as_json: AsJson = False


@command("animate")
class Animate(NamedTuple):
    """Animate a learned system next to the true one, from an initial state of the test split.

    Example: `undamped animate runs/pendulum-hnn-1 --out pendulum.gif`
    """

    runs: Annotated[
        list[Path], typer.Argument(help="Runs of one physical system; each gets a panel.")
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
            help="A run folder or a name of `undamped zoo`; or a model with random weights by its "
            "name, with settings such as task.delay=500 model.hidden_size=64.",
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


@command("doctor")
class Doctor(NamedTuple):
    """Find mistakes in a sequence model of your own, and test remedies.

    The exit code is 1 if something is wrong, for continuous integration.

    Example: `undamped doctor my_model.py:build --data batch.npz`
    """

    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION",
            help="A Python file, which is executed, and a function in it that returns the model. A "
            "function `loss` of output and targets in the file is used, if there is one.",
        ),
    ]
    data: Annotated[
        Path,
        typer.Option(
            help="A .npz file: `inputs`, and optionally `targets` and `lengths`. Further arrays, "
            "and lengths, are the arguments of `forward` with their names."
        ),
    ]
    causal: Annotated[
        bool, typer.Option("--causal", help="An output must not depend on later steps.")
    ] = False
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, help="The learning rate of Adam to judge.")
    ] = None
    clip: Annotated[
        float | None, typer.Option(min=0.0, help="The norm at which training clips gradients.")
    ] = None
    batch_first: Annotated[
        bool | None, typer.Option(help="Layout of the inputs; detected by default.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Write the findings with a figure to this .html file.")
    ] = None
    as_json: AsJson = False


@command("report")
class Report(NamedTuple):
    """Write one page that compares runs: verdict, curves, retention, gradient flow, cost.

    Example: `undamped report runs/copy-unicornn-1 runs/copy-lstm-1`
    """

    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or names of `undamped zoo`."),
    ]
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


@command("zoo")
class Zoo(NamedTuple):
    """List the trained models that come with undamped, describe them, or measure them again.

    Commands accept their names in place of a run folder, and write to the current folder. A score
    that differs from the recorded one ends `undamped zoo check` with exit code 1.

    Example: `undamped zoo check flags-latch`
    """

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]... | check [NAME]...",
            help="Describe these models; or measure their scores on the test data again, by "
            "default those of all models.",
        ),
    ] = None
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest relative difference of a score.")
    ] = 0.01
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
