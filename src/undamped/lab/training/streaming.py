"""Streams of raw samples to a model: prepared, and in blocks where that is faster."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import PreparedSamples
from undamped.lab.streams import Leaf, stream_of
from undamped.models.task_model import StreamingModel, TaskModel

BLOCK = 256
"""The largest number of samples that are collected while no output is requested."""
_VERSION = 1


class SampleStream:
    """A model, its preparation, and its state after the samples so far.

    Args:
        model: The model.
        preparation: The preparation of raw samples; None for samples that need none.
    """

    def __init__(self, model: TaskModel, preparation: Preparation | None = None) -> None:
        if not isinstance(model, StreamingModel):
            raise whole_sequences_only(model)
        self.model, self.preparation = model, preparation
        self.reset()

    def reset(self) -> None:
        """Begin a new series."""
        model, preparation = self.model, self.preparation
        self._prepared = None if preparation is None else preparation.stream()
        query_times = None
        if preparation is not None and preparation.at_times:
            query_times = torch.arange(1, preparation.horizon + 1, dtype=model.dtype)
        self._stream = stream_of(model, query_times)
        # Timestamps are compared with the previous one, so samples with them are not collected.
        self._collects = (
            self._stream.in_blocks and preparation is not None and not preparation.timestamps
        )
        self._pending: list[np.ndarray] = []
        self.steps = 0
        """The number of samples so far."""

    @property
    def _symbols(self) -> bool:
        return getattr(self.model, "input_kind", "vectors") == "symbols"

    def push(self, samples: Any, times: Any = None) -> None:
        """Take a raw sample, or several.

        Args:
            samples: Numbers of all channels (channels,), or one symbol; NaN where one is missing.
                With one dimension more, several samples in order.
            times: The timestamp of each, for models that were trained with timestamps.
        """
        rows = self._array(samples)
        single = rows.ndim == (0 if self._symbols else 1)
        if single and self._prepared is not None and self._collects:
            self._prepared.check(rows)
            self._pending.append(rows)
            if len(self._pending) == BLOCK:
                self._flush()
        else:
            self._flush()
            timestamps = (
                None if times is None else np.atleast_1d(np.asarray(times, dtype=np.float64))
            )
            rows = rows[None] if single else rows
            if len(rows):
                self._take(rows, timestamps)
        self.steps += 1 if single else len(rows)

    def _array(self, samples: Any) -> np.ndarray:
        if self._prepared is None:
            return np.asarray(samples, dtype=np.int64 if self._symbols else np.float64)
        with np.errstate(over="ignore"):  # infinite values are refused
            # Rounded like the recordings that the model was trained on.
            return np.asarray(samples, dtype=np.float32)

    def _flush(self) -> None:
        if self._pending:
            rows, self._pending = np.stack(self._pending), []
            self._take(rows, None)

    def _take(self, rows: np.ndarray, times: np.ndarray | None) -> None:
        if self._prepared is not None:
            prepared = self._prepared.push(rows, times)
            self._stream.push(*sample_tensors(prepared, self.model.dtype))
            return
        x = torch.from_numpy(rows)
        self._stream.push(x if self._symbols else x.to(self.model.dtype))

    def outputs(self) -> Tensor:
        """Return the prediction after the samples so far, (1, output)."""
        if not self.steps:
            raise DataError("A stream has no outputs before its first sample. Push one first.")
        self._flush()
        return self._stream.outputs()

    # Saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the samples so far: tensors and plain values."""
        self._flush()
        state: dict[str, Any] = {
            "version": _VERSION,
            "model": fingerprint(self.model, self.preparation),
            "steps": self.steps,
        }
        if self._prepared is not None:
            state["held"] = torch.from_numpy(self._prepared.last.copy())
            state["time"] = self._prepared.time
        if self.steps:
            leaves = self._stream.leaves()
            state |= {f"stream.{name}": leaf for name, leaf in leaves.items()}
        return {**state, **(more := self._more_state()), "checksum": _checksum({**state, **more})}

    def _more_state(self) -> dict[str, Any]:
        """Return further plain values of the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a stream with the same model.

        A state that is damaged, or that belongs to another model, is refused, and nothing changes.
        """
        plain = {name: value for name, value in state.items() if name != "checksum"}
        model = fingerprint(self.model, self.preparation)
        for wrong, reason in (
            (state.get("version") != _VERSION, "has another version, or is something else"),
            (state.get("checksum") != _checksum(plain), "is damaged"),
            (state.get("model") != model, "belongs to another model"),
        ):
            if wrong:
                raise DataError(
                    f"The stream state {reason}. Load a state that this model has saved, or start "
                    "without one."
                )
        leaves: dict[str, Leaf] = {
            name.removeprefix("stream."): value
            for name, value in plain.items()
            if name.startswith("stream.")
        }
        fresh = SampleStream(self.model, self.preparation)
        if plain["steps"]:
            fresh._stream.restore(leaves, self._example())
        self._stream, self._pending = fresh._stream, []
        self.steps, self._prepared = int(plain["steps"]), fresh._prepared
        if self._prepared is not None:
            self._prepared.last, self._prepared.time = plain["held"].numpy().copy(), plain["time"]

    def _example(self) -> dict[str, Tensor | None]:
        """Return arguments of `ModelStream.push` for one sample."""
        prepared, dtype = self.preparation, self.model.dtype
        if prepared is None:
            model: Any = self.model
            width = model.input_size if hasattr(model, "input_size") else model.shape.input_size
            x = torch.zeros(1, dtype=torch.int64) if self._symbols else torch.zeros(1, width)
            return {"x": x if self._symbols else x.to(dtype)}
        x = torch.zeros(1, prepared.input_size, dtype=dtype)
        dt = torch.zeros(1, dtype=dtype) if prepared.timestamps else None
        observed = torch.ones(1, prepared.input_size).bool() if prepared.missing == "mask" else None
        return {"x": x, "dt": dt, "observed": observed}


def sample_tensors(
    samples: PreparedSamples, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return inputs (samples, channels), times since the previous samples, and the mask."""
    x = torch.from_numpy(samples.inputs).to(dtype)
    dt = None if samples.dt is None else torch.from_numpy(samples.dt).to(dtype)
    observed = None if samples.observed is None else torch.from_numpy(samples.observed)
    return x, dt, observed


def fingerprint(model: TaskModel, preparation: Preparation | None) -> str:
    """Return a hash of the weights of a model and its preparation."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + _bytes(tensor))
    entries = None if preparation is None else preparation.to_dict()
    digest.update(json.dumps(entries, sort_keys=True).encode())
    return digest.hexdigest()


def _checksum(state: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        content = _bytes(value) if isinstance(value, Tensor) else repr(value).encode()
        digest.update(name.encode() + content)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu().contiguous()
    return (
        f"{plain.dtype}{tuple(plain.shape)}".encode()
        + plain.flatten().view(torch.uint8).numpy().tobytes()
    )


def whole_sequences_only(model: TaskModel) -> OptionError:
    """Return the error for a model that cannot predict sample by sample."""
    return OptionError(
        f"{type(model).__name__} reads whole sequences and cannot follow a stream. Use 'undamped "
        "predict' for whole sequences."
    )
