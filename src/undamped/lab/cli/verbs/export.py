"""`undamped export RUN`: a trained model as a file that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX: for onnxruntime and other runtimes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; without it, model.onnx in the run.")
    ] = None,
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="Write a second file, .step.onnx, that takes one sample with state in and out.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Write a trained model as a file that needs neither undamped nor PyTorch.

    It takes raw samples, in batches of any size and of any length; its answers are compared
    with PyTorch's before anything is written.

    Example: `undamped export runs/digits-unicornn-1 --onnx --step`
    """
    from undamped._base.errors import OptionError, explain
    from undamped._base.files import refuse_folder
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.export import export_onnx, subject_of
    from undamped.lab.training.run import Run

    if not onnx:
        raise OptionError(explain("export", expected="a format", got="none", remedy="Add --onnx."))
    opened = Run.open(run)
    path = opened.path / "model.onnx" if out is None else out
    if path.suffix != ".onnx":
        raise OptionError(
            explain(
                "--out",
                expected="a file name that ends in .onnx",
                got=f"'{path}'",
                remedy="Add the ending.",
            )
        )
    refuse_folder(path)
    written = export_onnx(subject_of(opened), path, step=step)
    if as_json:
        print_json({str(file): {"difference": found} for file, found in written.items()})
        return
    for file, found in written.items():
        console().print(
            f"{file}: answers as PyTorch does, largest relative difference {found:.1e}",
            soft_wrap=True,
        )
