"""Processes that torchrun or SLURM started, each with the same command.

Rank zero creates the run folder, writes and scores, and prints all messages. The other processes
receive its folder and train along.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from undamped._base.errors import OptionError, RunError
from undamped.lab.training.options import TrainOptions

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_CONNECTION_ERRORS = (
    "connection closed",
    "connection reset",
    "broken pipe",
    "peer",
    "timed out",
    "gloo",
    "nccl",
)


def is_launched() -> bool:
    """Return whether this process is one of several that torchrun or SLURM started."""
    return _world_size() > 1


def _world_size() -> int:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return int(os.environ.get("WORLD_SIZE", 1))
    if "SLURM_PROCID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        "bash",
        "interactive",
    ):
        # The tasks of a step, which srun started. The batch script of a job has another count.
        return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    return 1


def is_secondary_rank() -> bool:
    """Return whether another process is rank zero, which creates the run and prints."""
    name = "RANK" if "TORCHELASTIC_RUN_ID" in os.environ else "SLURM_PROCID"
    return is_launched() and int(os.environ.get(name, 0)) > 0


def is_silent() -> bool:
    """Return whether another process on the same machine prints the errors."""
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))
    return is_launched() and int(local) > 0


def check_launched(options: TrainOptions) -> None:
    """Refuse a number of processes that does not fit the options: each would train separately."""
    if is_launched() and _world_size() != options.processes:
        raise OptionError(
            f"{_world_size()} processes were started, but train.nodes={options.nodes} and "
            f"train.devices={options.devices} make {options.processes}. Set train.nodes and "
            "train.devices as for torchrun or srun."
        )


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together.

    Args:
        fabric: The Fabric of processes that were started from outside; None for a single process,
            and if training starts the other processes itself.
    """

    fabric: Fabric | None

    @classmethod
    def of(cls, options: TrainOptions, folder: Path) -> ProcessGroup:
        """Connect to the other processes, if there are any.

        Args:
            options: The training options.
            folder: The run folder; only rank zero writes to it.
        """
        if not is_launched():
            return cls(None)
        from undamped.lab.training.devices import make_fabric, silenced

        options = options if not is_secondary_rank() else replace(options, tensorboard=False)
        with silenced():
            fabric = make_fabric(options, folder)
        with silenced():  # again, since Lightning resets its loggers when it is imported
            fabric.launch()
        return cls(fabric)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes and scores."""
        return not is_secondary_rank()

    def broadcast_folder(self, folder: Path) -> Path:
        """Return the run folder of rank zero, from that of this process."""
        if self.fabric is None:
            return folder
        return Path(self.fabric.broadcast(str(folder.absolute())))


def any_process(fabric: Fabric, *flags: bool) -> tuple[bool, ...]:
    """Return for each flag whether it is set in any process."""
    return tuple(bool(total) for total in sum_processes(fabric, *map(float, flags)))


def sum_processes(fabric: Fabric, *values: float) -> tuple[float, ...]:
    """Return the sums of values over all processes."""
    if fabric.world_size == 1:
        return values
    local = torch.tensor(values, dtype=torch.float64, device=fabric.device)
    total: Any = fabric.all_reduce(local, reduce_op="sum")
    return tuple(total.tolist())


def lost_process_error(error: BaseException, folder: Path) -> RunError | None:
    """Return the error to raise if another process has ended; None for any other error."""
    text = str(error).strip()
    if not is_launched() or not isinstance(error, RuntimeError):
        return None
    if not any(word in text.lower() for word in _CONNECTION_ERRORS):
        return None
    return RunError(
        f"{folder}: another process of the training has ended "
        f"({text.splitlines()[0][:120]}). Start as many processes with: undamped resume {folder}"
    )
