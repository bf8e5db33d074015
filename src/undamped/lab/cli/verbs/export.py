"""`undamped export RUN`: a trained model as an ONNX file, as C, or as a page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Export
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.export import export_onnx, subject_of
from undamped.lab.files import refuse_folder
from undamped.lab.training.run import Run

_FORMATS = {"onnx": ("step",), "c": ("name", "libm", "int8", "integer", "lose"), "web": ()}
"""The options of every format."""


def export(options: Export) -> None:
    """Write the files and print how far their outputs are from PyTorch's."""
    formats = [name for name in _FORMATS if getattr(options, name)]
    if len(formats) != 1:
        raise OptionError("'undamped export' needs one format. Add --onnx, --c or --web.")
    (form,) = formats
    defaults = Export(options.run)
    for option in ("step", "name", "libm", "int8", "integer", "lose"):
        applies = option in _FORMATS[form]
        if not applies and getattr(options, option) != getattr(defaults, option):
            raise OptionError(f"--{option} does not apply to --{form}. Leave it out.")
    for option in ("lose", "integer"):
        if getattr(options, option) != getattr(defaults, option) and not options.int8:
            raise OptionError(f"--{option} applies to --int8 only. Add --int8, or leave it out.")
    write = {"onnx": _export_onnx, "c": _export_c, "web": _export_web}[form]
    write(options, Run.open(options.run))


def _file(options: Export, run: Run, ending: str) -> Path:
    path = options.out or run.output_folder / f"model{ending}"
    if path.suffix != ending:
        raise OptionError(f"--out must be a file that ends in {ending}, got '{path}'.")
    refuse_folder(path)
    return path


def _export_web(options: Export, run: Run) -> None:
    from undamped.lab.export.c.web import export_web

    path = _file(options, run, ".html")
    time = run.settings["task"].get("options", {}).get("time") or "time"
    size = export_web(subject_of(run), path, run.path.resolve().name, time=time)
    if options.as_json:
        print_json({"file": str(path), "bytes": size})
    else:
        print_lines(f"{path}: {size:,} bytes; open it in a browser")


def _export_onnx(options: Export, run: Run) -> None:
    path = _file(options, run, ".onnx")
    differences = export_onnx(subject_of(run), path, step=options.step)
    if options.as_json:
        print_json({str(file): {"difference": value} for file, value in differences.items()})
        return
    for file, value in differences.items():
        print_lines(f"{file}: the largest relative difference from PyTorch is {value:.1e}")


def _export_c(options: Export, run: Run) -> None:
    from undamped.lab.export.c.files import export_c
    from undamped.lab.export.c.int8 import calibrated, check_int8

    subject = subject_of(run)
    integer = calibrated(run, subject) if options.integer else None
    scores = check_int8(run, subject, options.lose, integer) if options.int8 else None
    result = export_c(
        subject,
        options.out or run.output_folder / "c",
        options.name or run.path.resolve().name,
        libm=options.libm == "math",
        int8=options.int8,
        integer=integer,
    )
    program = result.files.program
    if options.as_json:
        print_json(
            {
                "files": [str(path) for path in result.paths],
                "difference": result.error,
                "weight_bytes": program.constants.nbytes,
                "state_bytes": program.state_bytes,
                "stack_bytes": program.work_bytes,
                "int8": None if scores is None else asdict(scores),
            }
        )
        return
    source = result.paths[1]
    reference = "PyTorch" if integer is None else "the same integers in PyTorch"
    if result.error is None:
        macro = f"{program.name.upper()}_SELFTEST"
        checked = f"not compared with {reference} without a C compiler; compile it with -D{macro}"
    else:
        checked = f"the largest relative difference from {reference} is {result.error:.1e}"
    print_lines(
        f"{source}: {checked}",
        *([] if scores is None else [scores.sentence]),
        f"weights {program.constants.nbytes:,} bytes, state {program.state_bytes:,} bytes, arrays "
        f"on the stack {program.work_bytes:,} bytes",
    )
