"""Devices, processes and number format of a training.

One process in float32 on the CPU, the most common case, does not need Lightning, whose import takes
seconds. Everything else uses Lightning Fabric. If torchrun or SLURM started several processes with
the same command, rank zero creates the run folder, writes and scores, and prints all messages. The
other processes receive its folder and train along.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, RunError
from undamped._base.packages import require
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

M = TypeVar("M")
LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")


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


class SingleProcess:
    """The part of Lightning Fabric that training uses, for one process in float32 on the CPU."""

    device = torch.device("cpu")
    world_size = 1
    global_rank = 0
    is_global_zero = True

    @property
    def strategy(self) -> SingleProcess:
        """The object itself: nothing is distributed."""
        return self

    @property
    def precision(self) -> SingleProcess:
        """The object itself: nothing is converted."""
        return self

    def launch(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with this object, in this process."""
        return function(self)

    def convert_module(self, module: M) -> M:
        """Return the module as it is."""
        return module

    def setup_module(self, module: M) -> M:
        """Return the module as it is."""
        return module

    def to_device(self, module: nn.Module) -> nn.Module:
        """Return the module on the CPU."""
        return module.to(self.device)

    def setup_optimizers(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer, which is also the one that it wraps."""
        optimizer.optimizer = optimizer  # type: ignore[attr-defined]
        return optimizer

    def unscale_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: no loss is scaled."""

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss."""
        loss.backward()

    def log_dict(self, values: dict[str, Any], step: int) -> None:
        """Do nothing: there is no logger."""


def _needs_lightning(options: TrainOptions) -> bool:
    if options.accelerator == "auto":
        on_cpu = not torch.accelerator.is_available()
    else:
        on_cpu = options.accelerator == "cpu"
    single_process = options.processes == 1 and not is_launched()
    default = options.strategy == "auto" and options.precision == "32-true"
    return not (on_cpu and single_process and default and not options.tensorboard)


def make_fabric(options: TrainOptions, folder: Path) -> Fabric:
    """Return a Fabric, or raise an error if the machine does not have the devices.

    Args:
        options: The training options.
        folder: The folder of the TensorBoard log, if there is one.
    """
    if not _needs_lightning(options):
        return cast("Fabric", SingleProcess())
    require("training on several devices, on a GPU or in another precision", "lightning")
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    strategy = options.strategy
    if strategy == "auto" and options.processes > 1:
        # Spawned processes work from a script, a notebook and the command line alike.
        strategy = "ddp" if options.nodes > 1 or is_launched() else "ddp_spawn"
    try:
        return Fabric(
            accelerator=options.accelerator,
            devices=options.devices,
            num_nodes=options.nodes,
            strategy=strategy,
            precision=options.precision,
            loggers=[_tensorboard(folder)] if options.tensorboard else [],
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise OptionError(
            f"This machine does not have the requested devices ({first}). Check train.accelerator, "
            "train.devices and train.precision."
        ) from None


def _tensorboard(folder: Path) -> Any:
    try:
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        return TensorBoardLogger(folder, name="tensorboard", version="")
    except ModuleNotFoundError:
        raise OptionError(
            "train.tensorboard needs the package tensorboard. Install it with pip install "
            "'undamped[tensorboard]'."
        ) from None


def silence() -> None:
    """Silence Lightning in this process permanently, for processes that only train."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Silence Lightning temporarily."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            silence()
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
