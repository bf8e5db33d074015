"""Checkpoints: everything an interrupted training needs to end with the same numbers.

A checkpoint is one safetensors file, so it appears whole or not at all. Tensors (weights,
optimiser moments, carried state) are stored as such; counters and other plain values lie as
JSON in its header. Random numbers need no place in it: those of step n are a function of the
seed and n.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import RunError
from undamped._base.files import read_tensors, write_tensors
from undamped.lab.training.progress import Progress
from undamped.lab.training.run import load_weights

Carried = list[tuple[Tensor, ...] | None]
"""What each process carries from batch to batch."""


@dataclass
class Checkpoint:
    """A training that can go on.

    Of an optimiser only its state is kept: its groups come from the model and the options.
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
                carried[name if "/" in name else f"0/{name}"] = tensor  # once there was one process
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
        f"{path}: expected a checkpoint of undamped, got another file or a damaged one. Restore it "
        "from a copy, or train anew."
    )


def _is_plausible(progress: Progress) -> bool:
    """Whether everything is of the kind that a new `Progress` has in its place."""
    usual = vars(Progress())
    number = (int, float)
    kinds = {bool: bool, int: int, float: number, type(None): (*number, type(None))}
    return (
        all(
            isinstance(value, kinds.get(type(usual[name]), type(usual[name])))
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
    """Return the states of all processes from their tensors, and how many each has."""
    return [
        tuple(tensors[f"{process}/{index}"] for index in range(count)) or None
        for process, count in enumerate(counts)
    ] or None


def restore(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, source: str
) -> None:
    """Put weights and optimiser where the checkpoint left them."""
    load_weights(model, checkpoint.model, source)
    groups = optimizer.state_dict()["param_groups"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    usual = _usual_state(optimizer)
    for index, entries in checkpoint.optimizer.items():
        if not 0 <= index < len(parameters) or set(entries) != set(usual):
            raise _damaged(source)
        for name, value in entries.items():
            if isinstance(usual[name], Tensor):  # shaped like the parameter, or a count of steps
                shapes = (torch.Size(), parameters[index].shape)
                fits = isinstance(value, Tensor) and value.shape in shapes
            else:
                fits = value is None or isinstance(value, (int, float))
            if not fits:
                raise _damaged(source)
    optimizer.load_state_dict({"state": checkpoint.optimizer, "param_groups": groups})


def _usual_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return what an optimiser of this kind knows of a parameter after a step."""
    number = nn.Parameter(torch.zeros(1))
    number.grad = torch.zeros(1)
    like: Any = type(optimizer)
    trial = like([{**optimizer.param_groups[0], "params": [number]}])
    trial.step()
    return dict(trial.state[number])
