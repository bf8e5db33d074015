"""Devices, processes and number format of a training.

One process in float32 on the CPU, the most common case, does not need Lightning, whose import takes
seconds. Everything else uses Lightning Fabric.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.packages import require
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.process_group import is_launched

if TYPE_CHECKING:
    from lightning.fabric import Fabric

M = TypeVar("M")


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


LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")


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
