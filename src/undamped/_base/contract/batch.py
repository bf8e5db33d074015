"""A batch: the inputs of a model and their targets.

All fields that any model may need are defined here, so that training, evaluation, prediction,
instruments and export pass on the whole batch and do not depend on its contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import ShapeError

NO_TARGETS = torch.empty(0)
"""The targets of a batch without known answers."""


class Batch(NamedTuple):
    """Inputs and targets, time first; optional fields are None.

    Args:
        inputs: (time, batch, features) vectors or pixels, (time, batch) symbols,
            (time, batch, channels, height, width) images; (batch, features) for single points,
            and for states at the start of a trajectory. With `distinct` inputs, their indices:
            (time, batch), or (batch,).
        targets: (batch, …) for one answer, (time, batch, …) for one at every step,
            (outputs, batch, …) for a trajectory at `target_times`.
        lengths: (batch,) true lengths of the sequences.
        times: (time, batch) timestamps of the inputs, if these are irregular: not decreasing, and
            relative to a time 0 that all sequences of the task share, so that no answer depends
            on other sequences. Entries beyond a sequence's length are arbitrary. Long times are
            in double precision: a model takes differences first.
        observed: (time, batch, features) mask of the inputs that were measured; the others are
            arbitrary, for example NaN. Channels may be measured at different times.
        target_times: (outputs, batch) times of the answers, relative to the same time 0 and in any
            order; for trajectories relative to the time of the initial state, and not decreasing.
        target_mask: Mask of the known targets, in the shape of `targets` or without its last
            dimension; the others are arbitrary.
        distinct: (distinct, …) the inputs that occur, each once, if many are repeated, so that
            `each_input` processes each of them once; `expanded` returns the plain form.
        weights: (batch,) weight of each sequence in the loss; None if all are equal.
    """

    inputs: Tensor
    targets: Tensor = NO_TARGETS
    lengths: Tensor | None = None
    times: Tensor | None = None
    observed: Tensor | None = None
    target_times: Tensor | None = None
    target_mask: Tensor | None = None
    distinct: Tensor | None = None
    weights: Tensor | None = None

    def each_input(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to every input, and to those that occur several times once.

        Args:
            change: Takes inputs (count, …) and returns (count, …), each from its input alone.

        Returns:
            (time, batch, …), or (batch, …) for single points with indices.
        """
        if self.distinct is None:
            return change(self.inputs.flatten(0, 1)).unflatten(0, self.inputs.shape[:2])
        used, index = self.used()
        changed = change(used)
        # The gradient of plain indexing would accumulate element by element.
        return changed.index_select(0, index.flatten()).unflatten(0, index.shape)

    def used(self) -> tuple[Tensor, Tensor]:
        """Return the distinct inputs that occur in the batch, and the index of every input."""
        if self.distinct is None:
            raise ShapeError(
                "batch.distinct is None: the inputs are not indices. Use batch.inputs, or "
                "batch.each_input(function)."
            )
        used, index = torch.unique(self.inputs, return_inverse=True)
        return self.distinct if len(used) == len(self.distinct) else self.distinct[used], index

    def expanded(self) -> Batch:
        """Return the batch with inputs instead of indices into the distinct inputs."""
        if self.distinct is None:
            return self
        return self._replace(inputs=self.distinct[self.inputs], distinct=None)

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return a batch with a function applied to every tensor."""
        return Batch(*[None if part is None else change(part) for part in self])  # type: ignore

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        return self.map(lambda part: part.to(device))

    def cast(self, dtype: torch.dtype) -> Batch:
        """Return a batch whose inputs have the type of a model's weights.

        Times never lose precision, because differences of large times would be noise. Targets do
        not change their type, which depends on the loss.
        """

        def values(part: Tensor | None) -> Any:
            return part.to(dtype) if part is not None and part.is_floating_point() else part

        def timestamps(part: Tensor | None) -> Tensor | None:
            return None if part is None else part.to(torch.promote_types(part.dtype, dtype))

        return self._replace(
            inputs=values(self.inputs),
            times=timestamps(self.times),
            target_times=timestamps(self.target_times),
            distinct=values(self.distinct),
        )

    def part(self, samples: slice, *, inputs_axis: int, targets_axis: int) -> Batch:
        """Return some of the sequences.

        Args:
            samples: Which ones.
            inputs_axis: The batch dimension of the inputs: 1 for sequences, 0 for points.
            targets_axis: The batch dimension of the targets.
        """
        of_inputs = (slice(None),) * inputs_axis + (samples,)
        of_targets = (slice(None),) * targets_axis + (samples,)
        second = (slice(None), samples)
        return Batch(
            self.inputs[of_inputs],
            self.targets[of_targets] if self.targets.numel() else self.targets,
            None if self.lengths is None else self.lengths[samples],
            None if self.times is None else self.times[second],
            None if self.observed is None else self.observed[of_inputs],
            None if self.target_times is None else self.target_times[second],
            None if self.target_mask is None else self.target_mask[of_targets],
            self.distinct,
            None if self.weights is None else self.weights[samples],
        )

    def during(self, steps: slice, *, every: bool) -> Batch:
        """Return the same sequences at some of their steps.

        Args:
            steps: Which ones.
            every: Whether there is a target at every step, so that targets are sliced, too.
        """
        return self._replace(
            inputs=self.inputs[steps],
            times=None if self.times is None else self.times[steps],
            observed=None if self.observed is None else self.observed[steps],
            targets=self.targets[steps] if every else self.targets,
            target_mask=self.target_mask[steps]
            if every and self.target_mask is not None
            else self.target_mask,
        )
