"""A run as ONNX files, which are compared with PyTorch before they are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, RunError
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.export.subject import Subject
from undamped.lab.files import write_atomically
from undamped.lab.training.run import Run
from undamped.lab.training.streaming import sample_tensors

if TYPE_CHECKING:
    import onnx
    import onnxruntime

SIZES = ((1, 1), (9, 2), (64, 3))
"""Steps and sequences of the random batches."""
SMALLEST = 1e-2
"""Differences are relative to the largest output, or to this if that is smaller."""


def export_onnx(
    subject: Subject, path: Path, *, step: bool = False, tolerance: float = 1e-4
) -> dict[Path, float]:
    """Write a model as an ONNX file, and on request another one for single steps.

    Args:
        subject: The model with its preparation.
        path: The file for whole sequences; the file for single steps ends in `.step.onnx`.
        step: Whether to write the file for single steps, too.
        tolerance: The largest relative difference with which a file is written.

    Returns:
        The files, with the relative difference between their outputs and PyTorch's.
    """
    require_onnx()
    from undamped.lab.export.model import sequence_model, step_model

    variants: list[tuple[Path, Callable[[Subject], Any], Callable[..., float]]] = [
        (path, sequence_model, check_sequence)
    ]
    if step:
        variants.append((path.with_suffix(f".step{path.suffix}"), step_model, check_step))
    models: dict[Path, onnx.ModelProto] = {}
    errors: dict[Path, float] = {}
    for target, build, compare in variants:
        models[target] = build(subject)
        errors[target] = compare(models[target], subject)
        if not errors[target] <= tolerance:
            raise RunError(
                f"{target} was not written: its outputs differ from PyTorch's by "
                f"{errors[target]:.2g}, more than {tolerance:g}. Rounding errors grow too fast in "
                "this network."
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, model in models.items():
        write_atomically(target, lambda file, model=model: _write(file, model))
    return errors


def subject_of(run: Run) -> Subject:
    """Return the model of a run with its best weights, for export or streaming."""
    model, prepared = run.model(), run.preparation()
    shape = run.shape
    if not shape.sequential or shape.input_kind == "pictures":
        raise OptionError(
            f"The model of {run.path} does not read sequences sample by sample: "
            f"{model.why_no_stream}. Load it with undamped.lab.training.Run and call its model."
        )
    if shape.needs and prepared is None:
        raise OptionError(
            f"The model of {run.path} also uses {' and '.join(sorted(shape.needs))}. Call its "
            "model.step(x, state, dt, observed=…) from Python."
        )
    if prepared is not None:
        names = None if prepared.classes is None else tuple(prepared.classes)
        return Subject(model, prepared, names, run.path.name)
    if run.shape.answer != "class":
        return Subject(model, None, None, run.path.name)
    # Only classes of a text have names, for which the data of the task are loaded.
    symbols = run.task() if getattr(model, "input_kind", "") == "symbols" else None
    return Subject(model, None, tuple(getattr(symbols, "vocabulary", ())), run.path.name)


def require_onnx() -> None:
    """Raise OptionError if onnx or onnxruntime is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ModuleNotFoundError as error:
        raise OptionError(
            f"Export needs the package {error.name}. Install it with: pip install 'undamped[onnx]'."
        ) from None


def _write(file: Path, model: onnx.ModelProto) -> None:
    file.write_bytes(model.SerializeToString())


def open_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Open a model in onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns about every optional input
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check_sequence(model: onnx.ModelProto, subject: Subject, *, seed: int = 0) -> float:
    """Return the largest relative difference between file and PyTorch on random sequences."""
    session, random, worst = open_session(model), np.random.default_rng(seed), 0.0
    for steps, batch in SIZES:
        samples, times = random_samples(subject, steps, batch, random)
        lengths = random.integers(1, steps + 1, batch)
        for true_lengths in (None, lengths):
            feeds: dict[str, Any] = {"samples": samples}
            if times is not None:
                feeds["times"] = times
            if true_lengths is not None:
                feeds["lengths"] = true_lengths
            answers = _run(session, feeds)
            truth = torch_outputs(subject, samples, times, true_lengths)
            worst = max(worst, *(difference(answers[name], truth[name]) for name in truth))
    return worst


def check_step(model: onnx.ModelProto, subject: Subject, *, seed: int = 0) -> float:
    """Return the largest relative difference between file and PyTorch along a stream."""
    session, random, worst = open_session(model), np.random.default_rng(seed), 0.0
    steps, batch = SIZES[1]
    samples, times = random_samples(subject, steps, batch, random)
    feeds: dict[str, Any] = {}
    streams = [subject.preparation.stream() for _ in range(batch)] if subject.preparation else []
    state = None
    for t in range(steps):
        feeds["samples"] = samples[:, t]
        if times is not None:
            feeds["times"] = times[:, t]
        answers = _run(session, feeds)
        feeds = {name.removesuffix("_out"): v for name, v in answers.items() if "_out" in name}
        x, dt, observed = torch.from_numpy(samples[:, t]), None, None
        if streams:
            rows = [
                sample_tensors(
                    stream.push(
                        samples[i, t : t + 1], None if times is None else times[i, t : t + 1]
                    ),
                    subject.dtype,
                )
                for i, stream in enumerate(streams)
            ]
            x, dt, observed = (
                None if column[0] is None else torch.cat(column)
                for column in zip(*rows, strict=True)
            )
        with torch.no_grad():
            outputs, state = subject.model.step(x, state, dt, observed=observed)
        truth = _answers(subject, outputs)
        worst = max(worst, *(difference(answers[name], truth[name]) for name in truth))
    return worst


def random_samples(
    subject: Subject, steps: int, batch: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return raw samples (batch, time, …) for a model, and timestamps if it uses them."""
    shape = (batch, steps, *subject.sample_shape)
    model, prepared = subject.model, subject.preparation
    if subject.input_kind == "symbols":
        return random.integers(0, model.input_size, shape), None
    if subject.input_kind == "pixels":
        return random.integers(0, 256, shape, dtype=np.uint8), None
    samples = random.standard_normal(shape)
    times = None
    if prepared is not None:
        indices = [prepared.raw_channels.index(name) for name in prepared.channels]
        samples[..., indices] = samples[..., indices] * prepared.std + prepared.mean
        samples[random.random(shape) < 0.1] = np.nan
        if prepared.timestamps:
            gaps = prepared.typical_gap * random.uniform(0.5, 2.0, (batch, steps))
            times = gaps.cumsum(1)
    return samples.astype(torch.empty(0, dtype=subject.dtype).numpy().dtype), times


def torch_outputs(
    subject: Subject, samples: np.ndarray, times: np.ndarray | None, lengths: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return the outputs of PyTorch for raw samples (batch, time, …), by name."""
    prepared, x = subject.preparation, torch.from_numpy(samples).transpose(0, 1)
    batch = Batch(x, lengths=None if lengths is None else torch.from_numpy(lengths))
    if prepared is not None:
        count, steps = samples.shape[:2]
        ends = [steps] * count if lengths is None else lengths.tolist()
        series = [
            prepared.prepare(rows[:end], None if times is None else times[i, :end])
            for i, (rows, end) in enumerate(zip(samples, ends, strict=True))
        ]
        batch = batch_of(series)
    with torch.no_grad():
        outputs = subject.model(batch)
    if not subject.is_bank and subject.model.readout == "every":
        outputs = outputs.transpose(0, 1)
        missing = samples.shape[1] - outputs.shape[1]
        if missing:  # the file has outputs at padded steps, too
            bias = subject.model.head.bias.detach().expand(len(outputs), missing, -1)
            outputs = torch.cat([outputs, bias], 1)
    return _answers(subject, outputs)


def difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest expected number."""
    if actual.shape != expected.shape:
        return np.inf
    both = np.isfinite(expected) & np.isfinite(actual)
    if not np.array_equal(actual[~both], expected[~both], equal_nan=True):
        return np.inf
    scale = max(SMALLEST, float(np.abs(expected[both]).max(initial=0.0)))
    return float(np.abs(actual[both] - expected[both]).max(initial=0.0)) / scale


def _answers(subject: Subject, outputs: Tensor) -> dict[str, np.ndarray]:
    prepared = subject.preparation
    if subject.classes is not None:
        return {"scores": outputs.numpy(), "probabilities": torch.softmax(outputs, -1).numpy()}
    values = outputs.numpy()
    if prepared is None:
        return {"values": values}
    mean, std = np.array(prepared.target_mean), np.array(prepared.target_std)
    if prepared.kind == "forecast":
        shape = prepared.horizon, len(prepared.forecast)
        if prepared.quantiles:
            shape, mean, std = (*shape, len(prepared.quantiles)), mean[:, None], std[:, None]
        values = values.reshape(*values.shape[:-1], *shape)
    return {"values": values * std + mean}


def _run(session: onnxruntime.InferenceSession, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return {n: np.asarray(v) for n, v in zip(names, session.run(names, feeds), strict=True)}
