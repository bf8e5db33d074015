"""Lightning Fabric for the devices, processes and number format that the options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError
from undamped.lab.training.crew import is_launched
from undamped.lab.training.options import TrainOptions

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def make_fabric(options: TrainOptions, folder: Path) -> Fabric:
    """Return a Fabric, or say what this machine has not.

    Args:
        options: The training options.
        folder: Where a TensorBoard log goes, if one is asked for.
    """
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    strategy = options.strategy
    if strategy == "auto" and options.devices * options.nodes > 1:
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
            f"train: expected a device set-up that this machine has, got one it has not ({first}). "
            "Look at train.accelerator, train.devices and train.precision."
        ) from None


def _tensorboard(folder: Path) -> Any:
    try:
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        return TensorBoardLogger(folder, name="tensorboard", version="")
    except ModuleNotFoundError:
        raise OptionError(
            "train.tensorboard: expected the tensorboard package, got none. Install it with "
            "pip install 'undamped[tensorboard]'."
        ) from None
