"""Processes that torchrun or SLURM started: one leads, the others follow.

Every one of them runs the same command. The leader makes the run folder, writes and scores; the
followers learn where it is and train along. What a person should see comes from the leader.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from undamped._base.errors import OptionError, RunError, explain
from undamped.lab.training.options import TrainOptions

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_LOST = (
    "connection closed",
    "connection reset",
    "broken pipe",
    "peer",
    "timed out",
    "gloo",
    "nccl",
)


def is_launched() -> bool:
    """Whether this process is one of several that torchrun or SLURM started."""
    return _size() > 1


def _size() -> int:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return int(os.environ.get("WORLD_SIZE", 1))
    if "SLURM_PROCID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        "bash",
        "interactive",
    ):
        # Of a step, which srun started: the script of a job knows how many there might be.
        return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    return 1


def _number() -> int:
    name = "RANK" if "TORCHELASTIC_RUN_ID" in os.environ else "SLURM_PROCID"
    return int(os.environ.get(name, 0))


def is_secondary_rank() -> bool:
    """Whether another process leads, makes the run and talks."""
    return is_launched() and _number() > 0


def is_silent() -> bool:
    """Whether another process on the same machine says what is wrong."""
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))
    return is_launched() and int(local) > 0


def check_launched(options: TrainOptions) -> None:
    """Refuse processes that do not fit the options: each would train for itself.

    Args:
        options: How to train.
    """
    wanted = options.devices * options.nodes
    if is_launched() and _size() != wanted:
        raise OptionError(
            explain(
                "train.nodes and train.devices",
                expected=f"{_size()} processes together, as many as were started",
                got=f"{options.nodes} × {options.devices}",
                remedy="Give train.nodes and train.devices as torchrun or srun had them.",
            )
        )


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together.

    Args:
        fabric: Of processes that were started from outside; None where there is one process, or
            where training starts the others itself.
    """

    fabric: Fabric | None

    @classmethod
    def of(cls, options: TrainOptions, folder: Path) -> ProcessGroup:
        """Meet the other processes, if somebody started any.

        Args:
            options: How to train.
            folder: The run folder; followers do not write into it.
        """
        if not is_launched():
            return cls(None)
        from undamped.lab.training.devices import make_fabric, silenced

        options = options if not is_secondary_rank() else replace(options, tensorboard=False)
        with silenced():
            fabric = make_fabric(options, folder)
        with silenced():  # once more: Lightning talks anew when it is first imported
            fabric.launch()
        return cls(fabric)

    @property
    def leads(self) -> bool:
        """Whether this process writes and scores."""
        return not is_secondary_rank()

    def leader_folder(self, folder: Path) -> Path:
        """Return the run folder of the leader.

        Args:
            folder: What this process would take.
        """
        if self.fabric is None:
            return folder
        return Path(self.fabric.broadcast(str(folder.absolute())))


def anybody(fabric: Fabric, *wishes: bool) -> tuple[bool, ...]:
    """Return of each wish whether any process has it; all of them get the same answer.

    Args:
        fabric: The processes.
        wishes: The wishes of this one.
    """
    return tuple(bool(told) for told in all_together(fabric, *map(float, wishes)))


def all_together(fabric: Fabric, *numbers: float) -> tuple[float, ...]:
    """Return the sums of numbers over all processes.

    Args:
        fabric: The processes.
        numbers: Those of this one.
    """
    if fabric.world_size == 1:
        return numbers
    told = torch.tensor(numbers, dtype=torch.float64, device=fabric.device)
    summed: Any = fabric.all_reduce(told, reduce_op="sum")
    return tuple(summed.tolist())


def lost_process_error(error: BaseException, folder: Path) -> RunError | None:
    """Return what to say when another process is gone; None if that is not what happened.

    Args:
        error: What was raised.
        folder: The run folder.
    """
    text = str(error).strip()
    if not is_launched() or not isinstance(error, RuntimeError):
        return None
    if not any(word in text.lower() for word in _LOST):
        return None
    return RunError(
        explain(
            str(folder),
            expected="all processes to train to the end",
            got=f"one that is gone ({text.splitlines()[0][:120]})",
            remedy=f"Start as many again with: undamped resume {folder}",
        )
    )
