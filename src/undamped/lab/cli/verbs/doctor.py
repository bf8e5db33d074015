"""`undamped doctor`: what is wrong with a model of the user's own."""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import nn

from undamped._base.errors import OptionError
from undamped.analysis import doctor as examine
from undamped.lab.cli.commands.runs import Doctor
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.files import refuse_folder
from undamped.lab.report.examination import write_page


def doctor(options: Doctor) -> None:
    """Build the model, examine it, print the findings, and exit with 1 if there are any."""
    refuse_folder(options.out)
    model, loss = _build(options.model)
    arrays = _arrays(options.data)
    if "inputs" not in arrays:
        names = ", ".join(arrays) or "nothing"
        raise OptionError(f"{options.data} needs an array named inputs, but contains {names}.")
    targets, lengths = arrays.pop("targets", None), arrays.get("lengths")
    diagnosis = examine(
        model,
        _arguments(model, arrays),
        loss if targets is not None else None,
        targets=targets,
        lengths=lengths,
        causal=options.causal or None,
        batch_first=options.batch_first,
        learning_rate=options.learning_rate,
        clip=options.clip,
    )
    if options.out is not None:
        write_page(options.out, diagnosis, options.model)
    if options.as_json:
        print_json(diagnosis.to_dict())
    else:
        print_lines(str(diagnosis))
        if options.out is not None:
            print_lines(f"Page: {options.out}")
    if diagnosis.findings:
        raise typer.Exit(1)


def _arguments(model: nn.Module, arrays: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Return the arguments of the model's `forward` in its order; lengths if it has them."""
    signature = inspect.signature(model.forward)
    named = {name: array for name, array in arrays.items() if name != "inputs"}
    if "lengths" not in signature.parameters:
        named.pop("lengths", None)
    try:
        bound = signature.bind(arrays["inputs"], **named)
    except TypeError as error:
        kind = type(model).__name__
        raise OptionError(f"The arrays do not fit the forward of {kind}: {error}.") from error
    bound.apply_defaults()
    return bound.args


def _build(text: str) -> tuple[nn.Module, Any]:
    """Return the model that FILE:FUNCTION builds, and the file's `loss` or None."""
    file, _, function = text.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise OptionError(
            f"No such file: {file or text}. Write FILE:FUNCTION, for example my_model.py:build."
        )
    sys.path.insert(0, str(path.parent.absolute()))  # for modules beside the file
    try:
        names = runpy.run_path(str(path))
        build: Any = names.get(function)
        model: Any = build() if callable(build) else None
    except Exception as error:  # code of the user, which may raise anything
        kind = type(error).__name__
        raise OptionError(f"{text} cannot be built: {kind}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(build):
        raise OptionError(f"{path} has no function {function!r}.")
    if not isinstance(model, nn.Module):
        raise OptionError(f"{text} must return an nn.Module, got {type(model).__name__}.")
    return model, names.get("loss")


def _arrays(path: Path) -> dict[str, torch.Tensor]:
    """Return the arrays of a file as tensors, numbers in float32."""
    # Heavy, and with the limits on size that recordings have.
    from undamped.lab.data.recordings.formats.arrays import load_arrays

    tensors = {}
    for name, array in load_arrays(path)[0].items():
        if array.dtype.kind not in "fiub":
            raise OptionError(f"The array {name} of {path} holds {array.dtype}, not numbers.")
        # torch reads neither another byte order nor NumPy's longest floats.
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        tensors[name] = torch.from_numpy(array.astype(kind))
    return tensors
