"""Does the file answer as PyTorch does? Both are asked, the file through onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.export.subject import Subject
from undamped.lab.training.streaming import sample_tensors

if TYPE_CHECKING:
    import onnx
    import onnxruntime

SIZES = ((1, 1), (9, 2), (64, 3))
"""Steps and sequences of the batches that are tried."""
SMALLEST = 1e-2
"""Below this size an answer's difference is not divided by it."""


def open_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Open a model in onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns of every input that may be left out
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check_sequence(model: onnx.ModelProto, subject: Subject, *, seed: int = 0) -> float:
    """Return the largest relative difference between file and PyTorch on random sequences."""
    session, random, worst = open_session(model), np.random.default_rng(seed), 0.0
    for steps, batch in SIZES:
        samples, times = random_samples(subject, steps, batch, random)
        lengths = random.integers(1, steps + 1, batch)
        for given in (None, lengths):
            feeds: dict[str, Any] = {"samples": samples}
            if times is not None:
                feeds["times"] = times
            if given is not None:
                feeds["lengths"] = given
            answers = _ask(session, feeds)
            truth = expected(subject, samples, times, given)
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
        answers = _ask(session, feeds)
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
    """Return raw samples (batch, time, …) of the model's kind, and times if it wants them."""
    shape = (batch, steps, *subject.sample_shape)
    model, prepared = subject.model, subject.preparation
    if model.input_kind == "symbols":
        return random.integers(0, model.input_size, shape), None
    if model.input_kind == "pixels":
        return random.integers(0, 256, shape, dtype=np.uint8), None
    samples = random.standard_normal(shape)
    times = None
    if prepared is not None:
        places = [prepared.raw_channels.index(name) for name in prepared.channels]
        samples[..., places] = samples[..., places] * prepared.std + prepared.mean
        samples[random.random(shape) < 0.1] = np.nan
        if prepared.stamps:
            gaps = prepared.typical_gap * random.uniform(0.5, 2.0, (batch, steps))
            times = gaps.cumsum(1)
    return samples.astype(torch.empty(0, dtype=subject.dtype).numpy().dtype), times


def expected(
    subject: Subject, samples: np.ndarray, times: np.ndarray | None, lengths: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return what PyTorch answers to raw samples (batch, time, …), by output."""
    prepared, x = subject.preparation, torch.from_numpy(samples).transpose(0, 1)
    batch = Batch(x, lengths=None if lengths is None else torch.from_numpy(lengths))
    if prepared is not None:
        count, steps = samples.shape[:2]
        ends = [steps] * count if lengths is None else lengths.tolist()
        whole = [
            prepared.prepare(one[:end], None if times is None else times[i, :end])
            for i, (one, end) in enumerate(zip(samples, ends, strict=True))
        ]
        batch = batch_of(whole)
    with torch.no_grad():
        outputs = subject.model(batch)
    if subject.model.readout == "every":
        outputs = outputs.transpose(0, 1)
        missing = samples.shape[1] - outputs.shape[1]
        if missing:  # padded to the longest; the file answers to all steps
            bias = subject.model.head.bias.detach().expand(len(outputs), missing, -1)
            outputs = torch.cat([outputs, bias], 1)
    return _answers(subject, outputs)


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number that was wanted."""
    if got.shape != wanted.shape:
        return np.inf
    both = np.isfinite(wanted) & np.isfinite(got)
    if not np.array_equal(got[~both], wanted[~both], equal_nan=True):
        return np.inf
    scale = max(SMALLEST, float(np.abs(wanted[both]).max(initial=0.0)))
    return float(np.abs(got[both] - wanted[both]).max(initial=0.0)) / scale


def _answers(subject: Subject, outputs: Tensor) -> dict[str, np.ndarray]:
    prepared = subject.preparation
    if subject.classes is not None:
        return {
            "scores": outputs.numpy(),
            "probabilities": torch.softmax(outputs, -1).numpy(),
        }
    values = outputs.numpy()
    if prepared is None:
        return {"values": values}
    zero, one = np.array(prepared.target_mean), np.array(prepared.target_std)
    if prepared.kind == "forecast":
        shape = prepared.horizon, len(prepared.forecast)
        if prepared.quantiles:
            shape, zero, one = (*shape, len(prepared.quantiles)), zero[:, None], one[:, None]
        values = values.reshape(*values.shape[:-1], *shape)
    return {"values": values * one + zero}


def _ask(session: onnxruntime.InferenceSession, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return {n: np.asarray(v) for n, v in zip(names, session.run(names, feeds), strict=True)}
