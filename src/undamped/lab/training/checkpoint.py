"""Checkpoints, from which an interrupted training ends with the same bits.

A checkpoint is one safetensors file, which is written atomically. Tensors (weights, optimizer
moments, carried states) are stored as such; counters and other plain values are JSON in its header.
It contains no random numbers, since those of step n are a function of the seed and n.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from undamped._base.errors import RunError
from undamped.lab.files import read_tensors, write_tensors
from undamped.lab.training.progress import Progress
from undamped.lab.training.run import load_weights

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Carried = list[tuple[Tensor, ...] | None]
"""The state that each process carries from batch to batch."""


@dataclass
class Checkpoint:
    """The contents of a checkpoint.

    The parameter groups of the optimizer are not stored: they follow from model and options.
    """

    model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Any]]
    progress: Progress
    schedule: dict[str, float]
    carried: Carried | None = None


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    tensors = {f"model/{name}": tensor for name, tensor in checkpoint.model.items()}
    plain_state: dict[str, dict[str, Any]] = {}
    for index, entries in checkpoint.optimizer.items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{name}"] = value
            else:
                plain_state.setdefault(str(index), {})[name] = value
    for process, parts in enumerate(checkpoint.carried or ()):
        for index, part in enumerate(parts or ()):
            tensors[f"carried/{process}/{index}"] = part
    header = {
        "progress": asdict(checkpoint.progress),
        "schedule": checkpoint.schedule,
        "optimizer_state": plain_state,
        "carried": [len(parts or ()) for parts in checkpoint.carried or ()],
    }
    write_tensors(path, tensors, {"undamped": json.dumps(header)})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    tensors, metadata = read_tensors(path)
    try:
        header = json.loads(metadata["undamped"])
        state: dict[int, dict[str, Any]] = {
            int(index): dict(entries) for index, entries in header["optimizer_state"].items()
        }
        model: dict[str, Tensor] = {}
        carried: dict[str, Tensor] = {}
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            if kind == "model":
                model[name] = tensor
            elif kind == "carried":
                # Earlier versions stored the state of one process without its rank.
                carried[name if "/" in name else f"0/{name}"] = tensor
            else:
                index, _, entry = name.partition("/")
                state.setdefault(int(index), {})[entry] = tensor
        progress = Progress(**header["progress"])
        schedule = {str(name): float(value) for name, value in header["schedule"].items()}
        if not _is_plausible(progress):
            raise TypeError("progress of another form")
        return Checkpoint(
            model=model,
            optimizer=state,
            progress=progress,
            schedule=schedule,
            carried=_states(carried, header.get("carried", [len(carried)] if carried else [])),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise _damaged(str(path)) from None


def _damaged(path: str) -> RunError:
    return RunError(
        f"{path} is not a checkpoint of undamped, or it is damaged. Restore it from a copy, or "
        "train again."
    )


def _is_plausible(progress: Progress) -> bool:
    """Return whether all values have the types of a new `Progress`."""
    defaults, number = vars(Progress()), (int, float)
    types = {bool: bool, int: int, float: number, type(None): (*number, type(None))}
    return (
        all(
            isinstance(value, types.get(type(defaults[name]), type(defaults[name])))
            for name, value in vars(progress).items()
        )
        and all(isinstance(row, dict) for row in progress.rows)
        and all(
            isinstance(value, number)
            for row in (*progress.rows, progress.since)
            for value in row.values()
        )
        and progress.step >= 0
    )


def _states(tensors: dict[str, Tensor], counts: list[int]) -> Carried | None:
    """Return the states of all processes from their tensors and the number of tensors of each."""
    return [
        tuple(tensors[f"{process}/{index}"] for index in range(count)) or None
        for process, count in enumerate(counts)
    ] or None


def restore(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, source: str
) -> None:
    """Load the weights and the state of the optimizer."""
    load_weights(model, checkpoint.model, source)
    groups = optimizer.state_dict()["param_groups"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    expected = _example_state(optimizer)
    for index, entries in checkpoint.optimizer.items():
        if not 0 <= index < len(parameters) or set(entries) != set(expected):
            raise _damaged(source)
        for name, value in entries.items():
            if isinstance(expected[name], Tensor):  # of the parameter's shape, or a step count
                shapes = (torch.Size(), parameters[index].shape)
                fits = isinstance(value, Tensor) and value.shape in shapes
            else:
                fits = value is None or isinstance(value, (int, float))
            if not fits:
                raise _damaged(source)
    optimizer.load_state_dict({"state": checkpoint.optimizer, "param_groups": groups})


def _example_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of a parameter of one number after a step with such an optimizer."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer_class: Any = type(optimizer)
    trial = optimizer_class([{**optimizer.param_groups[0], "params": [parameter]}])
    trial.step()
    return dict(trial.state[parameter])


def gather_states(fabric: Fabric, state: Any) -> Carried:
    """Return the carried states of all processes on rank zero, and an empty list elsewhere.

    Args:
        fabric: The processes; all of them have to call this.
        state: The state of this process.
    """
    parts = (state,) if isinstance(state, Tensor) else state
    local = None if parts is None else tuple(part.cpu() for part in parts)
    if fabric.world_size == 1:
        return [local]
    states: list[Any] | None = [None] * fabric.world_size if fabric.is_global_zero else None
    torch.distributed.gather_object(local, states)
    return states or []


def state_of(checkpoint: Checkpoint, rank: int, world_size: int) -> Any:
    """Return the carried state of a process; None if it starts without one."""
    states = checkpoint.carried
    if not states:
        return None
    if len(states) != world_size:
        raise RunError(
            f"The checkpoint has the states of {len(states)} processes, but there are "
            f"{world_size}. Resume with as many processes as the run had."
        )
    parts = states[rank]
    return parts[0] if parts is not None and len(parts) == 1 else parts
