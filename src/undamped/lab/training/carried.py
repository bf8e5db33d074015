"""State that goes on from batch to batch: every process has its own, a checkpoint has all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import RunError, explain
from undamped.lab.training.checkpoint import Carried, Checkpoint

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def gathered(fabric: Fabric, state: Any) -> Carried:
    """Return the states of all processes, at the one that writes; others get nothing.

    Args:
        fabric: The processes; all of them have to call this.
        state: What this process carries.
    """
    parts = (state,) if isinstance(state, Tensor) else state
    mine = None if parts is None else tuple(part.cpu() for part in parts)
    if fabric.world_size == 1:
        return [mine]
    everybody: list[Any] | None = [None] * fabric.world_size if fabric.is_global_zero else None
    torch.distributed.gather_object(mine, everybody)
    return everybody or []


def state_of(checkpoint: Checkpoint, process: int, processes: int) -> Any:
    """Return the state with which a process goes on; None if it begins without one.

    Args:
        checkpoint: The checkpoint.
        process: The number of the process.
        processes: How many there are.
    """
    states = checkpoint.carried
    if not states:
        return None
    if len(states) != processes:
        raise RunError(
            explain(
                "checkpoint",
                expected=f"the states of {processes} processes",
                got=len(states),
                remedy="Go on with as many processes as the run had.",
            )
        )
    parts = states[process]
    return parts[0] if parts is not None and len(parts) == 1 else parts
