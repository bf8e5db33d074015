"""Which axis of a module's inputs is time: (time, batch, …) or (batch, time, …)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.errors import UndampedError
from undamped.analysis.core.gradients import first_tensor
from undamped.analysis.core.unrolled import evaluating
from undamped.models.task_model import TaskModel

Source = Literal["argument", "module", "trial", "submodule", "default"]


class InputLayout(NamedTuple):
    """Which axis of the inputs is time.

    Args:
        batch_first: Whether the inputs are (batch, time, …).
        source: Where that comes from: the caller, the module's `batch_first`, a trial of which
            axis holds independent sequences, the `batch_first` of a submodule, or the default,
            which is time first.
    """

    batch_first: bool
    source: Source

    def describe(self, steps: int, sequences: int) -> str:
        """Return how the inputs were read, with a remedy where that is uncertain.

        Args:
            steps: Number of steps.
            sequences: Number of sequences.
        """
        text = f"read as {steps} step{'s' * (steps != 1)} of {sequences} "
        text += f"sequence{'s' * (sequences != 1)}"
        if self.source in ("argument", "module", "trial"):
            return text
        return f"{text}; if that is wrong, give batch_first={not self.batch_first}"


def layout_of(module: nn.Module, inputs: Tensor, batch_first: bool | None = None) -> InputLayout:
    """Return which axis of the inputs is time.

    Args:
        module: Any module.
        inputs: Its inputs.
        batch_first: The caller's choice; detected if it is None.
    """
    if batch_first is not None:
        return InputLayout(batch_first, "argument")
    if isinstance(module, TaskModel):
        return InputLayout(False, "module")
    declared = getattr(module, "batch_first", None)
    if isinstance(declared, bool):
        return InputLayout(declared, "module")
    detected = _by_trial(module, inputs)
    if detected is not None:
        return InputLayout(detected, "trial")
    for part in module.modules():
        inner = getattr(part, "batch_first", None)
        if isinstance(inner, bool):
            return InputLayout(inner, "submodule")
    return InputLayout(False, "default")


def _by_trial(module: nn.Module, inputs: Tensor) -> bool | None:
    """Return whether sequences lie along the first axis; None where a trial is inconclusive.

    Sequences of a batch are independent of each other, whereas the end of a sequence depends on
    its earlier steps.
    """
    if inputs.dim() != 3 or not inputs.is_floating_point():
        return None
    try:
        with evaluating(module), torch.no_grad():
            before = first_tensor(module(inputs))
            if not torch.equal(before, first_tensor(module(inputs))):
                return None
            first, second = (_independent(module, inputs, before, axis) for axis in (0, 1))
    except (UndampedError, TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        return None  # errors of the module are raised when it is measured
    return first if first != second else None


def _independent(module: nn.Module, inputs: Tensor, before: Tensor, axis: int) -> bool:
    """Return whether a change at either end of an axis affects only the output at that index."""
    size = inputs.shape[axis]
    # One output per sequence, (batch, …), or one for each of its steps, laid out as the inputs.
    output_axis = axis if before.dim() >= 3 else 0
    if before.dim() < 2 or before.shape[output_axis] != size:
        return False
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    for index in (0, size - 1):
        changed = inputs.clone()
        changed.select(axis, index).copy_(1 + noise.select(axis, index))
        difference = (first_tensor(module(changed)) - before).abs()
        difference.select(output_axis, index).zero_()
        if bool((difference > 1e-5 * (1 + before.abs().max())).any()):
            return False
    return True
