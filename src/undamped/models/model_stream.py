"""Models fed with the samples of one stream, which answer when they are asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from undamped._base.errors import DataError, explain

if TYPE_CHECKING:
    from undamped.models.task_model import StreamingModel

Leaf = Tensor | int | float
"""What a state is made of."""


class ModelStream(ABC):
    """A model's state after the samples so far."""

    in_blocks: ClassVar[bool] = False
    """Whether many samples at once take less time than one after the other."""

    @abstractmethod
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Take samples.

        Args:
            x: (samples, …).
            dt: (samples,) the time since the sample before, for a model that uses times.
            observed: (samples, features) what was measured, for a model that uses that.
        """

    @abstractmethod
    def outputs(self) -> Tensor:
        """Return what the model says after the samples so far, (1, outputs)."""

    @abstractmethod
    def leaves(self) -> dict[str, Leaf]:
        """Return tensors and numbers that the state is made of, by name; nothing is shared."""

    @abstractmethod
    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Go on from what `leaves` returned; anything else is refused.

        Args:
            leaves: Tensors and numbers by name.
            sample: Arguments of `push` for one sample, to learn from what a state looks like.
        """


class StepStream(ModelStream):
    """A model whose `step` is called for one sample after the other.

    Args:
        model: The model; later training reaches it.
        ahead: (outputs,) how long after a sample answers are asked for; None where steps count.
    """

    def __init__(self, model: StreamingModel, ahead: Tensor | None = None) -> None:
        self._model, self._ahead = model, ahead
        self._state: Any = None
        self._outputs: Tensor | None = None

    @torch.no_grad()
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Take samples; arguments are those of `ModelStream.push`."""
        for number in range(len(x)):
            one = slice(number, number + 1)
            since = None if dt is None else dt[one]
            seen = None if observed is None else observed[one]
            if self._ahead is None:
                answer, self._state = self._model.step(x[one], self._state, since, observed=seen)
            else:
                answers, self._state = self._model.step(
                    x[one], self._state, since, observed=seen, ahead=self._ahead
                )
                answer = answers.transpose(0, 1).flatten(1)
            self._outputs = answer

    def outputs(self) -> Tensor:
        """Return what the model says after the samples so far, (1, outputs)."""
        assert self._outputs is not None
        return self._outputs

    def leaves(self) -> dict[str, Leaf]:
        """Return tensors and numbers that the state is made of, by name."""
        parts = [*_flat(self._state), self.outputs()]
        return {str(at): _own(part) for at, part in enumerate(parts)}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Go on from what `leaves` returned; arguments are those of `ModelStream.restore`."""
        like = StepStream(self._model, self._ahead)
        like.push(**sample)  # type: ignore[arg-type]
        check_leaves(leaves, like.leaves(), grows=grows(self._model))
        parts = [_own(leaves[str(at)]) for at in range(len(leaves))]
        self._outputs = torch.as_tensor(parts.pop())
        self._state = _filled(like._state, iter(parts))


def grows(model: Any) -> bool:
    """Return whether the state of a model becomes larger with every sample."""
    cell = getattr(getattr(model, "network", None), "cell_class", None)
    return bool(getattr(cell, "state_grows", False))


def check_leaves(leaves: dict[str, Leaf], like: dict[str, Leaf], *, grows: bool = False) -> None:
    """Refuse a state that is not one of this model.

    Args:
        leaves: What is to be gone on from.
        like: A state of the model.
        grows: Whether sizes may differ, since they become larger with every sample.
    """
    bad = sorted(set(leaves) ^ set(like))
    for name in sorted(set(leaves) & set(like)):
        part, own = leaves[name], like[name]
        fits = isinstance(part, Tensor) == isinstance(own, Tensor)
        if fits and isinstance(part, Tensor) and isinstance(own, Tensor):
            fits = part.dtype == own.dtype and part.dim() == own.dim()
            fits = fits and (grows or part.shape == own.shape)
        if not fits:
            bad.append(name)
    if bad:
        raise DataError(
            explain(
                "stream state",
                expected="the parts of this model's state, in their shapes and types",
                got=f"another '{bad[0]}'",
                remedy="Load a state that this model has saved.",
            )
        )


def _own(part: Leaf) -> Leaf:
    return part.detach().clone() if isinstance(part, Tensor) else part


def _flat(state: Any) -> list[Leaf]:
    """Return the tensors and numbers of nested tuples, in order."""
    if state is None:
        return []
    if isinstance(state, (Tensor, int, float)):
        return [state]
    return [leaf for part in state for leaf in _flat(part)]


def _filled(like: Any, leaves: Any) -> Any:
    """Return nested tuples of the form of others, with other tensors and numbers in them."""
    if like is None:
        return None
    if isinstance(like, (Tensor, int, float)):
        return next(leaves)
    parts = [_filled(part, leaves) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
