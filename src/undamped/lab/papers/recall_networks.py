"""Networks that recall symbols after a delay: their settings, training and tests.

`recall` and `screening` are the experiments with these networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch

from undamped._base.options import Default, Fraction, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.papers.runs import SeedOptions, check_names, fit_once, prefixed
from undamped.lab.training import Run

LARGEST_TEST_BATCH = 40_000
"""Steps times sequences of a test batch: networks that attend to all states have T²/2 weights."""
SHORTEST_VALIDATION_INTERVAL = 25
"""Updates between two validations."""


class RecallOptions(SeedOptions):
    """Options that all experiments about recall share."""

    steps: Annotated[PositiveInt, Default(10_000, "Largest number of updates of each network.")]
    batch_size: Annotated[
        PositiveInt,
        Default(16, "Sequences per update, for networks without a default of their own."),
    ]
    goal: Annotated[Fraction, Default(0.999, "Validation accuracy at which training stops.")]
    units: Annotated[PositiveInt, Default(128, "Hidden units of each network.")]
    tests: Annotated[PositiveInt, Default(200, "Sequences of every test.")]


@dataclass(frozen=True)
class NetworkSetup:
    """A network and the way it is trained.

    Args:
        model: Registry name.
        options: Options of the network.
        train: Options of training.
    """

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


LSTM_INITIALISATION = {"input_std": 1.0, "forget_bias": 1.0}
"""With PyTorch's initialisation, LSTMs hardly distinguish one-hot symbols for thousands of
updates. An LSTM that initially remembers for some twenty steps (a forget gate of σ(3)) learns to
copy over that many, which it needs before it can fail at more."""
ROTATION = {"optimizer": "rmsprop", "learning_rate": 1e-3, "constrained_learning_rate": 1e-4}
COSINE: dict[str, Any] = {"learning_rate": 2e-3, "schedule": "cosine"}
MEMORY = {"recent": 10, "relevant": 15}
NETWORKS: dict[str, NetworkSetup] = {
    "orth-rnn": NetworkSetup(
        "rnn-orth", {"initialisation": "random", "nonlinearity": "modrelu"}, ROTATION
    ),
    "exprnn": NetworkSetup("exprnn", {}, ROTATION),
    "lstm": NetworkSetup("lstm", LSTM_INITIALISATION, {"learning_rate": 2e-3}),
    "lstm-remembering": NetworkSetup(
        "lstm",
        {**LSTM_INITIALISATION, "forget_bias": 3.0},
        {"learning_rate": 5e-3, "batch_size": 32, "schedule": "cosine"},
    ),
    "h-detach": NetworkSetup(
        "lstm", {"h_detach": 0.25, **LSTM_INITIALISATION}, {"learning_rate": 2e-3}
    ),
    "goru": NetworkSetup("goru", {}, {"optimizer": "rmsprop"}),
    "memrnn": NetworkSetup("memrnn", {}, {"batch_size": 32}),
    "memrnn-sum": NetworkSetup("memrnn", {"mix": "sum"}, COSINE),
    "memlstm": NetworkSetup("memlstm", LSTM_INITIALISATION, {"learning_rate": 2e-3}),
    "sab": NetworkSetup("sab", LSTM_INITIALISATION, {"learning_rate": 2e-3}),
    "relrnn": NetworkSetup("relrnn", {"recent": 10, "relevant": 10}, {"learning_rate": 2e-3}),
    "relrnn-sum": NetworkSetup("relrnn", {"recent": 10, "relevant": 10, "mix": "sum"}, COSINE),
    "rellstm": NetworkSetup("rellstm", {**MEMORY, **LSTM_INITIALISATION}, {"learning_rate": 2e-3}),
}
"""Names and order are those of the thesis. The state of memory networks is (h + c)/2, as in the
authors' program; of those with "-sum" it is h + c, as the thesis prints."""


def network_setups(networks: Sequence[str]) -> dict[str, NetworkSetup]:
    """Return the settings of networks by name."""
    check_names("network of this experiment", networks, list(NETWORKS))
    return {name: NETWORKS[name] for name in networks}


@dataclass(frozen=True)
class TrainedNetwork:
    """One network after one training.

    Args:
        network: Its name in the tables.
        delay: The delay of the training.
        accuracy: Fraction of correct symbols in the tests, by delay.
        step_accuracy: Fraction of correct answers at all steps of the tests, blanks included.
        updates: Number of updates.
        batch_size: Sequences per update.
        cpu_seconds: CPU time of the training, all threads together.
        seconds: Elapsed time of the training.
        parameters: Number of parameters.
        curve: Updates and validation accuracies.
        run: The run folder.
    """

    network: str
    delay: int
    accuracy: dict[int, float]
    step_accuracy: dict[int, float]
    updates: int
    batch_size: int
    cpu_seconds: float
    seconds: float
    parameters: int
    curve: tuple[list[int], list[float]]
    run: Path

    def model(self) -> Any:
        """Load the trained model."""
        return Run.open(self.run).model()


def train_and_test(
    task: str,
    name: str,
    setup: NetworkSetup,
    delay: int,
    test_delays: Sequence[int],
    budget: Mapping[str, Any],
) -> TrainedNetwork:
    """Train a network at one delay and test it at others.

    Args:
        task: "copy" or "denoise".
        name: The name of the network in the tables.
        setup: The network and its settings.
        delay: The delay of the training.
        test_delays: The delays of the tests.
        budget: All options of `RecallOptions`.
    """
    progress, steps = prefixed(budget["progress"], f"{name} at {delay}"), budget["steps"]
    run = fit_once(
        setup.model,
        task,
        model_options={"hidden_size": budget["units"], **setup.options},
        task_options={"delay": delay},
        train={
            "steps": steps,
            "batch_size": budget["batch_size"],
            "clip": 1.0,
            "goal": budget["goal"],
            # A validation costs as much as some ten updates.
            "validate_every": max(min(steps, SHORTEST_VALIDATION_INTERVAL), steps // 50),
            **setup.train,
        },
        seed=budget["seed"],
        out=budget["out"],
        progress=progress,
    )
    result, model = run.result, run.model()
    assert result is not None
    accuracy, step_accuracy = {}, {}
    for test_delay in test_delays:
        progress(f"test at {test_delay}")
        accuracy[test_delay], step_accuracy[test_delay] = recall_accuracy(
            model, task, test_delay, budget["tests"]
        )
    rows = [row for row in run.metrics() if "valid_accuracy" in row]
    return TrainedNetwork(
        network=name,
        delay=delay,
        accuracy=accuracy,
        step_accuracy=step_accuracy,
        updates=result["steps"],
        batch_size=run.settings["train"]["batch_size"],
        cpu_seconds=result["cpu_seconds"],
        seconds=result["seconds"],
        parameters=run.settings["model"]["parameters"],
        curve=([int(row["step"]) for row in rows], [row["valid_accuracy"] for row in rows]),
        run=run.path,
    )


@torch.no_grad()
def recall_accuracy(model: Any, task_name: str, delay: int, sequences: int) -> tuple[float, float]:
    """Return the fractions of correct symbols and of correct steps in new sequences.

    Args:
        model: A trained model.
        task_name: "copy" or "denoise".
        delay: The delay of the sequences.
        sequences: Number of sequences.
    """
    task: Any = tasks.build(task_name, delay=delay, seed=0)
    size = max(1, min(sequences, LARGEST_TEST_BATCH // task.length))
    model.eval()
    symbols, total, steps = 0.0, 0, 0.0
    for number in range(-(-sequences // size)):
        batch = task.batch("test", number, min(size, sequences - number * size))
        prediction = model.run(batch)[0]
        score, count = task.score(prediction, batch)
        symbols, total = symbols + float(score), total + count
        steps += float((prediction.argmax(-1) == batch.targets).sum())
    return symbols / total, steps / (sequences * task.length)
