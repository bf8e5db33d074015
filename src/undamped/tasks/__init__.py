"""Tasks: data, loss, metric, and what a guess would score."""

from undamped.registry import tasks as _registry
from undamped.tasks.adding import Adding
from undamped.tasks.characters import Characters
from undamped.tasks.copying import Copy, TransferCopy
from undamped.tasks.denoise import Denoise
from undamped.tasks.densities import PlanarDensity, PointCloud
from undamped.tasks.digits import NoisePaddedDigits
from undamped.tasks.imdb import IMDB
from undamped.tasks.lorenz96 import Lorenz96
from undamped.tasks.noise_cifar import NoisePaddedCIFAR10
from undamped.tasks.pictures import CIFAR10Images, MNISTImages
from undamped.tasks.points import Annuli, Spirals
from undamped.tasks.psmnist import PermutedMNIST
from undamped.tasks.ptb import PennTreebank
from undamped.tasks.recordings import Recordings
from undamped.tasks.series import SeriesTask
from undamped.tasks.smnist import SequentialMNIST
from undamped.tasks.task import Batch, Chance, Split, Task
from undamped.tasks.ucr import ArchiveSeries
from undamped.tasks.vitals import VitalSigns

__all__ = [
    "IMDB",
    "Adding",
    "Annuli",
    "ArchiveSeries",
    "Batch",
    "CIFAR10Images",
    "Chance",
    "Characters",
    "Copy",
    "Denoise",
    "Lorenz96",
    "MNISTImages",
    "NoisePaddedCIFAR10",
    "NoisePaddedDigits",
    "PennTreebank",
    "PermutedMNIST",
    "PlanarDensity",
    "PointCloud",
    "Recordings",
    "SequentialMNIST",
    "SeriesTask",
    "Spirals",
    "Split",
    "Task",
    "TransferCopy",
    "VitalSigns",
    "build",
]


def build(name: str, **options: object) -> Task:
    """Build any task by its registry name, for example `build("copy", delay=200)`."""
    return _registry.build(name, **options)
