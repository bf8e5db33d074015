"""Scores that papers print for published data: psMNIST, noise-padded CIFAR-10, IMDB, PTB.

Every row is one training, which is continued where it was interrupted. Its result has the share of
the paper's budget that it took.

    undamped reproduce published-scores rows=imdb-unicornn,imdb-lstm --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from undamped._base.options import PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.papers.runs import SeedOptions, check_names, experiment, fit_once, prefixed
from undamped.lab.report.charts import draw_lines, label, panels
from undamped.lab.report.table import Report, Table


@dataclass(frozen=True)
class Row:
    """A training whose score a paper prints.

    Args:
        task: The task.
        model: The network.
        epochs: Passes over the training data here.
        printed: The score of the paper.
        printed_epochs: Passes in the paper.
        model_options: Options of the network.
        train: Options of training.
        task_options: Options of the task.
    """

    task: str
    model: str
    epochs: float
    printed: float | None = None
    printed_epochs: float | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)


_COSINE = {"schedule": "cosine"}
_PSMNIST = {**_COSINE, "batch_size": 64}
_IMDB = {**_COSINE, "batch_size": 32, "validate_every": 546}
_PTB = {**_COSINE, "batch_size": 128}
_LARGE = {"hidden_size": 1024, "embedding_size": 200}

ROWS = {
    "psmnist-unicornn": Row(
        "psmnist",
        "unicornn",
        90,
        0.978,
        2600,
        {"hidden_size": 128, "num_layers": 3, "dt": 0.19, "alpha": 30.65},
        {**_PSMNIST, "learning_rate": 0.005},
    ),
    "psmnist-cornn": Row("psmnist", "cornn", 10, 0.973),
    "psmnist-exprnn": Row("psmnist", "exprnn", 10, 0.966, None, {}, _PSMNIST),
    "psmnist-indrnn": Row("psmnist", "indrnn", 10, 0.960, None, {"num_layers": 6}, _PSMNIST),
    "psmnist-lstm": Row(
        "psmnist", "lstm", 30, 0.929, None, {}, {**_PSMNIST, "learning_rate": 0.002}
    ),
    "noise-cifar-unicornn": Row("noise-cifar", "unicornn", 30, 0.624, 500, {}, _COSINE),
    "noise-cifar-lstm": Row("noise-cifar", "lstm", 10, 0.116),
    "imdb-unicornn": Row("imdb", "unicornn", 5, 0.884, 50, {}, _IMDB),
    "imdb-lstm": Row("imdb", "lstm", 5, None, None, {}, _IMDB),
    "ptb-lstm": Row(
        "ptb",
        "lstm",
        6,
        None,
        None,
        {"hidden_size": 512, "embedding_size": 128},
        {**_COSINE, "batch_size": 32, "learning_rate": 0.002},
    ),
    "ptb-nnrnn": Row("ptb", "nnrnn", 10, 1.47, None, _LARGE, _PTB),
    "ptb-exprnn": Row("ptb", "exprnn", 10, 1.49, None, _LARGE, _PTB),
    "ptb-rnn-orth": Row("ptb", "rnn-orth", 10, 1.62, None, _LARGE, _PTB),
}
"""Epochs of papers are those of their logs; where there is none, the paper does not say."""


@dataclass(frozen=True)
class Score:
    """The result of one row.

    Args:
        row: Its name.
        metric: The name of the score.
        test: The score on the test split.
        valid: The best score on the validation split.
        epochs: Passes over the training data.
        cpu_seconds: CPU time of the training.
        parameters: Number of trained parameters.
        curve: Epochs and validation scores.
    """

    row: str
    metric: str
    test: float
    valid: float
    epochs: float
    cpu_seconds: float
    parameters: int
    curve: tuple[list[float], list[float]]


@experiment("published-scores")
def run(
    *,
    rows: Sequence[str] = ("imdb-unicornn", "imdb-lstm"),
    epochs: PositiveFloat | None = None,
    **options: Unpack[SeedOptions],
) -> Report:
    """Scores that papers print for psMNIST, noise-padded CIFAR-10, IMDB and Penn Treebank.

    Args:
        rows: Names of rows: a task and a network, such as psmnist-lstm.
        epochs: Passes over the training data; those of the row by default.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(rows=("psmnist-lstm",), epochs=1)

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021, tables 1, 2 and 5.
        G. Kerg et al. Non-normal recurrent neural network (nnRNN). NeurIPS, 2019, table 2.
    """
    check_names("row of this experiment", rows, list(ROWS))
    return report_of({name: ROWS[name] for name in rows}, epochs, options)


def report_of(rows: Mapping[str, Row], epochs: float | None, options: SeedOptions) -> Report:
    """Return the scores of some rows, after training what is not finished yet."""
    scores = [_train(name, row, epochs, options) for name, row in rows.items()]
    cells = [_cells(score, rows[score.row]) for score in scores]
    header = ("row", "printed", "here", "validation", "epochs", "budget", "parameters", "CPU min")
    title = f"Scores on the test split, seed {options['seed']}."
    notes = [
        "The budget is the share of the paper's epochs; a dash means that the paper does not say."
    ]
    return Report(
        scores,
        [Table(header, cells, title, notes)],
        {"published-scores": lambda: _figure(scores)},
    )


def _train(name: str, row: Row, epochs: float | None, options: SeedOptions) -> Score:
    finished = fit_once(
        row.model,
        row.task,
        model_options=row.model_options,
        task_options=row.task_options,
        train={**row.train, "epochs": epochs or row.epochs},
        seed=options["seed"],
        out=options["out"],
        progress=prefixed(options["progress"], name),
    )
    result, settings = finished.result, finished.settings
    assert result is not None
    metric = tasks[row.task].metric
    batches = finished.task().count("train", finished.train_options().batch_size)
    assert batches is not None
    curve = finished.metrics()
    return Score(
        name,
        metric,
        result["test"][metric],
        result["valid"][metric],
        result["steps"] / batches,
        result["cpu_seconds"],
        settings["model"]["parameters"],
        (
            [line["step"] / batches for line in curve],
            [line[f"valid_{metric}"] for line in curve],
        ),
    )


def _cells(score: Score, row: Row) -> tuple[str, ...]:
    budget = None if row.printed_epochs is None else score.epochs / row.printed_epochs
    return (
        score.row,
        "–" if row.printed is None else _text(row.printed, score.metric),
        _text(score.test, score.metric),
        _text(score.valid, score.metric),
        f"{score.epochs:.3g}",
        "–" if budget is None else f"{100 * budget:.2g} %",
        f"{score.parameters:,}",
        f"{score.cpu_seconds / 60:.1f}",
    )


def _text(score: float, metric: str) -> str:
    return f"{100 * score:.1f} %" if metric == "accuracy" else f"{score:.3f}"


def _figure(scores: Sequence[Score]) -> Any:
    metrics = list(dict.fromkeys(score.metric for score in scores))
    figure, all_axes = panels(5.0 * len(metrics), 3.6, columns=len(metrics))
    for axes, metric in zip(all_axes, metrics, strict=True):
        draw_lines(axes, {score.row: score.curve for score in scores if score.metric == metric})
        label(axes, "epochs", f"validation {metric.replace('_', ' ')}")
    return figure
