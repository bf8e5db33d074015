"""A run as ONNX files: built, compared with PyTorch, and only then written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError, RunError, explain
from undamped._base.files import write_atomically
from undamped.lab.export.subject import Subject
from undamped.lab.training.run import Run

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-4
"""The largest relative difference with which a file is still written."""


def export_onnx(subject: Subject, path: Path, *, step: bool = False) -> dict[Path, float]:
    """Write a model as an ONNX file, and another one for single steps if that is asked for.

    Args:
        subject: The model and what is known about it.
        path: Where the file for whole sequences goes; that for steps goes beside it, with
            `.step.onnx` at its end.
        step: Whether to write the file for steps too.

    Returns:
        The files, and by how much their answers differ from PyTorch's, relatively.
    """
    require_onnx()
    from undamped.lab.export.check import check_sequence, check_step
    from undamped.lab.export.sequence import sequence_model
    from undamped.lab.export.step import step_model

    ways: list[tuple[Path, Callable[[Subject], Any], Callable[..., float]]] = [
        (path, sequence_model, check_sequence)
    ]
    if step:
        ways.append((path.with_suffix(f".step{path.suffix}"), step_model, check_step))
    made: dict[Path, tuple[onnx.ModelProto, float]] = {}
    for place, build, compare in ways:
        model = build(subject)
        found = compare(model, subject)
        if not found <= TOLERANCE:
            raise RunError(
                explain(
                    str(place),
                    expected=f"answers within {TOLERANCE:g} of PyTorch's",
                    got=f"a relative difference of {found:.2g}",
                    remedy="Nothing was written; this network's rounding grows too fast to export.",
                )
            )
        made[place] = (model, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, (model, _) in made.items():
        contents = model.SerializeToString()
        write_atomically(place, lambda file, contents=contents: _write(file, contents))
    return {place: found for place, (_, found) in made.items()}


def subject_of(run: Run) -> Subject:
    """Return the model of a run with its best weights, ready for export or for a stream."""
    model, prepared = run.model(), run.preparation()
    shape = run.shape
    if not shape.sequential or shape.input_kind == "pictures":
        raise OptionError(
            explain(
                str(run.path),
                expected="a run whose model reads sequences sample by sample",
                got=model.why_no_stream,
                remedy="Load it with undamped.lab.training.Run and call its model.",
            )
        )
    if shape.needs and prepared is None:
        raise OptionError(
            explain(
                str(run.path),
                expected="a model that reads samples alone, or one of recordings",
                got=f"one that also uses {' and '.join(sorted(shape.needs))}",
                remedy="Call its model.step(x, state, dt, observed=…) from Python.",
            )
        )
    if prepared is not None:
        names = None if prepared.classes is None else tuple(prepared.classes)
        return Subject(model, prepared, names, run.path.name)
    if run.shape.answer != "class":
        return Subject(model, None, None, run.path.name)
    # Only a text has names for its classes, and only then is the task's data looked at.
    symbols = run.task() if getattr(model, "input_kind", "") == "symbols" else None
    return Subject(model, None, tuple(getattr(symbols, "vocabulary", ())), run.path.name)


def require_onnx() -> None:
    """Say what to install where something is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ModuleNotFoundError as error:
        raise OptionError(
            explain(
                "export",
                expected="the packages onnx and onnxruntime",
                got=f"no {error.name}",
                remedy="Install them with: pip install 'undamped[onnx]'.",
            )
        ) from None


def _write(file: Path, contents: bytes) -> None:
    file.write_bytes(contents)
