"""Which axis of a module's inputs is time: (time, batch, …) or (batch, time, …)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.errors import UndampedError
from undamped.analysis.core.input_gradients import first_tensor
from undamped.analysis.core.unrolled import evaluating
from undamped.models.task_model import TaskModel

Source = Literal["argument", "module", "trial", "submodule", "default"]


class InputLayout(NamedTuple):
    """How inputs are read.

    Args:
        batch_first: Whether they are (batch, time, …).
        source: Where that is known from: the caller, the module's own `batch_first`, a trial of
            which axis holds sequences that do not depend on each other, the `batch_first` of a
            module inside, or nothing, which means time first.
    """

    batch_first: bool
    source: Source

    def words(self, steps: int, sequences: int) -> str:
        """Say how inputs were read, and where that was not certain what to do if it is wrong.

        Args:
            steps: How many steps there were.
            sequences: How many sequences.
        """
        read = f"read as {steps} step{'s' * (steps != 1)} of {sequences} "
        read += f"sequence{'s' * (sequences != 1)}"
        if self.source in ("argument", "module", "trial"):
            return read
        return f"{read}; if that is wrong, give batch_first={not self.batch_first}"


def layout_of(module: nn.Module, inputs: Tensor, batch_first: bool | None = None) -> InputLayout:
    """Return which axis of the inputs is time.

    Args:
        module: Any module.
        inputs: What it takes.
        batch_first: What the caller says, if anything.
    """
    if batch_first is not None:
        return InputLayout(batch_first, "argument")
    if isinstance(module, TaskModel):
        return InputLayout(False, "module")
    own = getattr(module, "batch_first", None)
    if isinstance(own, bool):
        return InputLayout(own, "module")
    found = _by_trial(module, inputs)
    if found is not None:
        return InputLayout(found, "trial")
    for part in module.modules():
        inner = getattr(part, "batch_first", None)
        if isinstance(inner, bool):
            return InputLayout(inner, "submodule")
    return InputLayout(False, "default")


def _by_trial(module: nn.Module, inputs: Tensor) -> bool | None:
    """Return whether sequences lie along the first axis; None where a trial does not tell.

    A sequence does not depend on those beside it, but its end depends on its steps.
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
        return None  # whatever is wrong with the module or its inputs shows when it is measured
    return first if first != second else None


def _independent(module: nn.Module, inputs: Tensor, before: Tensor, axis: int) -> bool:
    """Whether a change at either end of an axis leaves the answers to all others as they are."""
    size = inputs.shape[axis]
    # One answer for each sequence, (batch, …), or one for each of its steps in the inputs' layout.
    place = axis if before.dim() >= 3 else 0
    if before.dim() < 2 or before.shape[place] != size:
        return False
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    for index in (0, size - 1):
        changed = inputs.clone()
        changed.select(axis, index).copy_(1 + noise.select(axis, index))
        moved = (first_tensor(module(changed)) - before).abs()
        moved.select(place, index).zero_()
        if bool((moved > 1e-5 * (1 + before.abs().max())).any()):
            return False
    return True
