"""`undamped export RUN`: a trained model as an ONNX file."""

from __future__ import annotations

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Export
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.export import export_onnx, subject_of
from undamped.lab.files import refuse_folder
from undamped.lab.training.run import Run


def export(options: Export) -> None:
    """Write the files and print how far their outputs are from PyTorch's."""
    if not options.onnx:
        raise OptionError("'undamped export' needs a format. Add --onnx.")
    run = Run.open(options.run)
    path = options.out or run.output_folder / "model.onnx"
    if path.suffix != ".onnx":
        raise OptionError(f"--out must be a file that ends in .onnx, got '{path}'.")
    refuse_folder(path)
    differences = export_onnx(subject_of(run), path, step=options.step)
    if options.as_json:
        print_json({str(file): {"difference": value} for file, value in differences.items()})
        return
    for file, value in differences.items():
        print_lines(f"{file}: the largest relative difference from PyTorch is {value:.1e}")
