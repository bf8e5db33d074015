"""Streams: a model processes samples one after the other, and predicts on request."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from undamped._base.errors import DataError, shortened

if TYPE_CHECKING:
    from undamped.models.sequence_model import SequenceModel
    from undamped.models.task_model import StreamingModel

Leaf = Tensor | int | float
"""A part of a state."""


class ModelStream(ABC):
    """A model's state after the samples so far."""

    in_blocks: ClassVar[bool] = False
    """Whether pushing many samples at once is faster than one after the other."""

    @abstractmethod
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Process samples.

        Args:
            x: (samples, …).
            dt: (samples,) the time since the previous sample, for a model that uses times.
            observed: (samples, features) mask of the measured values, for a model that uses it.
        """

    @abstractmethod
    def outputs(self) -> Tensor:
        """Return the prediction after the samples so far, (1, outputs)."""

    @abstractmethod
    def leaves(self) -> dict[str, Leaf]:
        """Return copies of the tensors and numbers of the state, by name."""

    @abstractmethod
    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Restore the state that `leaves` returned; any other is refused.

        Args:
            leaves: Tensors and numbers by name.
            sample: Arguments of `push` for one sample, which determine the form of a state.
        """


class StepStream(ModelStream):
    """A stream that calls `step` of a model for every sample.

    Args:
        model: The model; later training changes it here too.
        offsets: (outputs,) query times relative to a sample; None for predictions by step.
    """

    def __init__(self, model: StreamingModel, offsets: Tensor | None = None) -> None:
        self._model, self._offsets = model, offsets
        self._state: Any = None
        self._outputs: Tensor | None = None

    @torch.no_grad()
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        for index in range(len(x)):
            row = slice(index, index + 1)
            outputs, self._state = self._model.step(
                x[row],
                self._state,
                None if dt is None else dt[row],
                observed=None if observed is None else observed[row],
                offsets=self._offsets,
            )
            self._outputs = outputs if self._offsets is None else outputs.transpose(0, 1).flatten(1)

    def outputs(self) -> Tensor:
        assert self._outputs is not None
        return self._outputs

    def leaves(self) -> dict[str, Leaf]:
        parts = [*_flat(self._state), self.outputs()]
        return {str(index): _copied(part) for index, part in enumerate(parts)}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        like = StepStream(self._model, self._offsets)
        like.push(**sample)  # type: ignore[arg-type]
        check_leaves(leaves, like.leaves(), grows=grows(self._model))
        parts = [_copied(leaves[str(index)]) for index in range(len(leaves))]
        self._outputs = torch.as_tensor(parts.pop())
        self._state = _filled(like._state, iter(parts))


def grows(model: Any) -> bool:
    """Return whether the state of a model grows with every sample."""
    cell = getattr(getattr(model, "network", None), "cell_class", None)
    return bool(cell and cell.memory_plan.state_grows)


def check_leaves(leaves: dict[str, Leaf], like: dict[str, Leaf], *, grows: bool = False) -> None:
    """Refuse a state that does not fit the model.

    Args:
        leaves: The state.
        like: A state of the model.
        grows: Whether sizes may differ, since they grow with every sample.
    """
    bad = sorted(set(leaves) ^ set(like))
    for name in sorted(set(leaves) & set(like)):
        leaf, example = leaves[name], like[name]
        fits = isinstance(leaf, Tensor) == isinstance(example, Tensor)
        if fits and isinstance(leaf, Tensor) and isinstance(example, Tensor):
            fits = leaf.dtype == example.dtype and leaf.dim() == example.dim()
            fits = fits and (grows or leaf.shape == example.shape)
        if not fits:
            bad.append(name)
    if bad:
        raise DataError(
            f"The stream state does not fit this model: '{shortened(bad[0])}' is missing, unknown, "
            "or has another shape or type. Load a state that this model has saved."
        )


def _copied(part: Leaf) -> Leaf:
    return part.detach().clone() if isinstance(part, Tensor) else part


def _flat(state: Any) -> list[Leaf]:
    """Return the tensors and numbers of nested tuples, in order."""
    if state is None:
        return []
    if isinstance(state, (Tensor, int, float)):
        return [state]
    return [leaf for part in state for leaf in _flat(part)]


def _filled(like: Any, leaves: Any) -> Any:
    """Return nested tuples in the form of `like`, filled with other leaves."""
    if like is None:
        return None
    if isinstance(like, (Tensor, int, float)):
        return next(leaves)
    parts = [_filled(part, leaves) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


class NetworkStream(ModelStream):
    """A stream over a copy of a recurrent network and its readout; faster than `StepStream`.

    Args:
        model: The model; later training does not change the stream.
    """

    def __init__(self, model: SequenceModel) -> None:
        self._model, self._head = model, copy.deepcopy(model.head)
        self._stream = model.network.stream()
        self._last: Tensor | None = None
        self._total: Tensor | None = None
        self._count = 0

    @torch.no_grad()
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        vectors = self._model.encode_features(x, dt, observed)
        for vector in vectors.split(1):
            self._last = self._stream.push(vector)
            self._count += 1
            if self._model.readout == "mean":
                # In double precision, since a stream may be long.
                wide = self._last.double()
                self._total = wide if self._total is None else self._total + wide

    @torch.no_grad()
    def outputs(self) -> Tensor:
        assert self._last is not None
        if self._total is None:
            return self._head(self._last)
        return self._head((self._total / self._count).to(self._last.dtype))

    def leaves(self) -> dict[str, Leaf]:
        assert self._last is not None
        state = self._stream.state
        parts = (state,) if isinstance(state, Tensor) else state
        leaves: dict[str, Leaf] = {str(index): part for index, part in enumerate(parts)}
        leaves |= {"count": self._count, "last": self._last.clone()}
        return leaves if self._total is None else {**leaves, "total": self._total.clone()}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        like = NetworkStream(self._model)
        like.push(**sample)  # type: ignore[arg-type]
        check_leaves(leaves, like.leaves(), grows=grows(self._model))
        tensors = {name: torch.as_tensor(leaf).clone() for name, leaf in leaves.items()}
        self._count, self._last = int(tensors.pop("count")), tensors.pop("last")
        self._total = tensors.pop("total", None)
        parts = tuple(tensors[str(index)] for index in range(len(tensors)))
        self._stream = self._model.network.stream(parts[0] if len(parts) == 1 else parts)


def stream_of(model: StreamingModel, offsets: Tensor | None = None) -> ModelStream:
    """Return the stream of a model: its own if it has a method `stream`, or the fastest that fits.

    Args:
        model: The model.
        offsets: (outputs,) query times relative to a sample, for a model that predicts at given
            times; None for any other.
    """
    if hasattr(model, "stream"):
        return model.stream(offsets)  # type: ignore[operator]
    # Imported here, since the baselines, which subclass `ModelStream`, do not need it.
    from undamped.models.sequence_model import SequenceModel

    if isinstance(model, SequenceModel) and not model.at_times:
        return NetworkStream(model)
    return StepStream(model, offsets)
