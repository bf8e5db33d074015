"""The entrants of the memory benchmark, and the files of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from undamped._base.errors import OptionError, RunError, shortened
from undamped._base.options import Fraction, NonNegativeFloat, NonNegativeInt, convert
from undamped._base.registry import tasks as task_registry
from undamped.lab.files import read_json
from undamped.version import __version__

TASKS = (
    "last-event",
    "first-event",
    "event-before-last",
    "event-order",
    "first-is-last",
    "flags",
    "prefix-depth",
    "next-event",
    "event-at-position",
    "last-value",
    "cups",
    "last-digit",
)
LENGTHS = (256, 1024, 4096, 16384)
SHORT = 128
"""Steps of the longest sequences of short training."""
SOLVED = 0.95
FORMAT = 2


@dataclass(frozen=True)
class Entrant:
    """A model as it takes part in the benchmark.

    Args:
        model: Registry name.
        options: Options of the model.
        train: Options of its training other than the budget.
        certificate: Whether its score is one that can be reached without memory.
        longest: The longest test; cost grows with the square of the length for some models.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    certificate: bool = False
    longest: int = LENGTHS[-1]


def _certificate(model: str, **options: Any) -> Entrant:
    # Closed-form models are fitted to batches that are in memory at once.
    closed_form = model in ("bank", "minirocket", "boosting")
    return Entrant(model, options, {"steps": 20} if closed_form else {}, certificate=True)


ENTRANTS: dict[str, Entrant] = {
    "bank": _certificate("bank"),
    "minirocket": _certificate("minirocket"),
    "boosting": _certificate("boosting"),
    "window-64": _certificate("window", window=64),
    "window-256": _certificate("window", window=256),
    "legendre": _certificate("linear-memory", basis="legendre"),
    "oscillators": _certificate("linear-memory", basis="oscillators"),
    "latch": Entrant("latch"),
    "latch-slow": Entrant("latch", {"slow_gates": True}),
    "latch-gru": Entrant("latch-gru"),
    "lstm": Entrant("lstm"),
    "gru": Entrant("gru"),
    "mingru": Entrant("mingru", {"num_layers": 3}),
    "lem": Entrant("lem", train={"learning_rate": 0.003}),
    "unicornn": Entrant("unicornn", {"num_layers": 2}),
    "linoss": Entrant("linoss", {"num_layers": 2}, {"learning_rate": 0.003}),
    "lru": Entrant("lru", {"num_layers": 2}, {"learning_rate": 0.003}),
    "s4d": Entrant("s4d", {"num_layers": 2, "modes": 4}, {"learning_rate": 0.003}),
    "lmu": Entrant("lmu", {"window": SHORT}),
    "rellstm": Entrant("rellstm", train={"learning_rate": 0.003}),
    "memlstm": Entrant("memlstm", train={"learning_rate": 0.003}, longest=1024),
    "transformer": Entrant("transformer", train={"learning_rate": 0.001}, longest=4096),
}
"""The models of the table; another registered model takes part with its defaults."""


@dataclass(frozen=True)
class Score:
    """What one training reached; `accuracy` is by the number of steps of the test.

    Args:
        task: The task.
        entrant: The entrant.
        trained: Steps of the longest training sequences.
        seed: The seed of model and training.
        certificate: Whether the model has no memory.
        chance: The accuracy of the commonest answer.
        accuracy: Accuracy on held-out sequences, by their number of steps.
        sequences: Number of test sequences of each length.
        budget: The limit of CPU time; 0 for a model in closed form.
        cpu_seconds: CPU time of training.
        updates: Optimizer steps.
        parameters: Number of trained parameters.
        refused: Why there is no score.
        version: The version of undamped.
        format: The version of the file format.
    """

    task: str
    entrant: str
    trained: NonNegativeInt
    seed: int
    certificate: bool
    chance: Fraction
    accuracy: dict[str, float]
    sequences: NonNegativeInt = 0
    budget: NonNegativeFloat = 0.0
    cpu_seconds: NonNegativeFloat = 0.0
    updates: NonNegativeInt = 0
    parameters: NonNegativeInt = 0
    refused: str = ""
    version: str = __version__
    format: int = FORMAT

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.task}--{self.entrant}--{self.trained}--{self.seed}.json"

    @classmethod
    def read(cls, path: Path) -> Score:
        """Read a file of scores, and check every value in it."""
        stored = read_json(path)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise RunError(
                f"{path} is not a file of scores of format {FORMAT}. Remove it, or use the version "
                "of undamped that wrote it."
            )
        types = get_type_hints(cls, include_extras=True)
        del types["accuracy"]
        try:
            values = {name: convert(kind, stored[name], name) for name, kind in types.items()}
            accuracy = {
                str(int(steps)): convert(Fraction, value, "accuracy")
                for steps, value in dict(stored["accuracy"]).items()
            }
        except (OptionError, KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} is damaged: {shortened(error)}. Remove it; it is computed again."
            ) from None
        if values["task"] not in task_registry:
            raise RunError(
                f"{path} has scores of the task '{shortened(values['task'])}', which is not known. "
                "Load its file with --with, or remove the scores."
            )
        return cls(**values, accuracy=accuracy)
