"""The memory benchmark: tasks that cannot be solved without memory, and what models reach on them.

A training is a task, a model, a length of the training sequences and a seed. Its scores are one
JSON file. Networks are trained on short sequences and tested on long ones, and later also trained
at the length of the test. Models without memory, whose scores are the certificates of a task, are
trained at the length of the test. Several processes can work in the same folder.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from undamped._base.errors import OptionError, UndampedError
from undamped._base.options import PositiveFloat, PositiveInt, unknown_name
from undamped._base.registry import models as model_registry
from undamped._base.registry import tasks as task_registry
from undamped.lab.benchmarks.memory_report import paper, summarise
from undamped.lab.benchmarks.memory_scores import ENTRANTS, LENGTHS, SHORT, TASKS, Entrant, Score
from undamped.lab.files import file_lock, write_json, write_text
from undamped.lab.report.table import Progress, Report, silent
from undamped.lab.tasks.events import LongTests
from undamped.lab.training import fit
from undamped.lab.training.plan import resolve

TRAINING_FRACTION = 0.6
"""Fraction of the time that is left for training; tests of up to 16,384 steps take the rest."""


def run(
    *,
    tasks: Sequence[str] = TASKS,
    models: Sequence[str] = tuple(ENTRANTS),
    seeds: PositiveInt = 3,
    cpu_seconds: PositiveFloat | None = None,
    trained: Sequence[PositiveInt] = (SHORT, *LENGTHS),
    tested: Sequence[PositiveInt] = LENGTHS,
    minutes: PositiveFloat | None = None,
    out: str | Path = "runs/memory",
    progress: Progress = silent,
) -> Report:
    """Train every model on every task, and compare the scores with those without memory.

    Args:
        tasks: Registry names of tasks whose tests are longer than their training sequences.
        models: Names of `ENTRANTS`, or other registered models, which take part with their
            defaults.
        seeds: Number of seeds of each training.
        cpu_seconds: CPU time of the training of a network; closed-form models have 1,280 sequences.
            By default that of the scores in `out`; without scores 60, or less if the first seed of
            the small table would not end within `minutes`.
        trained: Steps of the longest training sequences: 128 stands for sequences of 32 to 128
            steps, other numbers for sequences of exactly that length.
        tested: Steps of the test sequences after short training.
        minutes: No further training is started that would end after this time.
        out: The folder of the scores. Trainings whose scores are in it are not repeated.
        progress: Called with a line of text and the finished fraction.
    """
    entrants = {name: ENTRANTS.get(name) or Entrant(name) for name in models}
    _check(tasks, entrants)
    folder = Path(out)
    plan = list(_plan(tasks, entrants, seeds, trained))
    timed = sum(
        "steps" not in entrants[name].train
        for _, name, length, seed in plan
        if seed == 0 and _is_small(entrants[name], length)
    )
    cpu_seconds = _cpu_seconds(folder, cpu_seconds, minutes, timed or len(plan))
    start = time.perf_counter()
    for number, (task, name, length, seed) in enumerate(plan):
        if minutes is not None and time.perf_counter() - start + cpu_seconds > 60 * minutes:
            break
        stub = Score(task, name, length, seed, entrants[name].certificate, 0.0, {})
        with _claim(folder, stub) as path:
            if path is not None:
                progress(f"{task}, {name}, {length} steps, seed {seed}", number / len(plan))
                write_json(path, asdict(_train(stub, entrants[name], cpu_seconds, tested)))
    report = summarise(_stored(folder))
    write_text(folder / "report.md", report.markdown())
    write_text(folder / "paper.md", paper(report))
    for name, figure in report.figures().items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    return report


def _stored(folder: Path) -> list[Score]:
    return [Score.read(path) for path in sorted((folder / "scores").glob("*.json"))]


def _cpu_seconds(
    folder: Path, requested: float | None, minutes: float | None, trainings: int
) -> float:
    """Return the CPU time of a training, which all scores of a folder have in common.

    Args:
        folder: The folder of the scores.
        requested: The time that the user set.
        minutes: The time for all trainings.
        trainings: Number of trainings that should end within it.
    """
    stored = {score.budget for score in _stored(folder)} - {0.0}
    limit = math.inf if minutes is None else 60 * minutes
    seconds = requested or min(
        stored, default=min(60.0, float(f"{TRAINING_FRACTION * limit / trainings:.2g}"))
    )
    if different := stored - {seconds}:
        raise OptionError(
            f"The models in {folder} were trained for {min(different):g} CPU seconds. Set "
            f"cpu_seconds={min(different):g} to continue, or choose another folder with --out."
        )
    if seconds > limit or not (requested or stored or seconds >= 1):
        raise OptionError(
            f"--minutes {minutes:g} is too short: each training of the first table, of which there "
            f"are {trainings}, would have {min(seconds, limit / trainings):.2g} CPU seconds. Set a "
            "longer time, a smaller cpu_seconds=, or fewer models= and tasks=."
        )
    return seconds


@contextmanager
def _claim(folder: Path, stub: Score) -> Iterator[Path | None]:
    """Yield the file of a training that no process has made or is making; None for others."""
    for part in ("scores", "locks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    path = folder / "scores" / stub.file
    with file_lock(folder / "locks" / stub.file, wait=False) as locked:
        yield path if locked and not path.exists() else None


def _check(tasks: Sequence[str], entrants: Mapping[str, Entrant]) -> None:
    """Raise an error for unknown names, and for models that cannot answer a task."""
    for name in tasks:
        task = task_registry[name]
        if not (isinstance(task, type) and issubclass(task, LongTests)):
            raise OptionError(
                f"The task '{name}' has no tests at several lengths. Choose from: "
                f"{', '.join(TASKS)}."
            )
    for name, entrant in entrants.items():
        if entrant.model not in model_registry:
            raise unknown_name("model", name, [*ENTRANTS, *model_registry])
        if "steps" not in entrant.train:  # a closed-form model refuses data, not a task
            resolve(entrant.model, tasks[0], {"model": dict(entrant.options)}, 0, False)


def _is_small(entrant: Entrant, length: int) -> bool:
    """Return whether the small table has a training of this length."""
    return length == (LENGTHS[1] if entrant.certificate else SHORT)


def _plan(
    tasks: Sequence[str], entrants: Mapping[str, Entrant], seeds: int, trained: Sequence[int]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield task, entrant, training length and seed: what the small table needs comes first."""
    for small in (True, False):
        for seed, length in itertools.product(range(seeds), trained):
            for task, (name, entrant) in itertools.product(tasks, entrants.items()):
                if entrant.certificate and length == SHORT:
                    continue
                if length > entrant.longest:
                    continue
                if _is_small(entrant, length) == small:
                    yield task, name, length, seed


def _train(
    stub: Score, entrant: Entrant, cpu_seconds: float, tested: Sequence[int] = LENGTHS
) -> Score:
    """Train one model; a refusal becomes part of the score."""
    tests = tested if stub.trained == SHORT else (stub.trained,)
    options = {
        "length": stub.trained,
        "test_lengths": tuple(length for length in tests if length <= entrant.longest),
        # A certificate is the best of several models, so its scores need a smaller error.
        "sequences": 8000 if stub.certificate else 256,
        "seed": 1000 * stub.seed,
        **({} if stub.trained == SHORT else {"shortest": stub.trained}),
    }
    budget = {} if "steps" in entrant.train else {"cpu_seconds": cpu_seconds}
    values = asdict(stub)
    task = task_registry[stub.task](**options)
    values["chance"] = task.chance.metric
    try:
        with tempfile.TemporaryDirectory() as out:
            training = fit(
                entrant.model,
                stub.task,
                model_options=entrant.options,
                task_options=options,
                train={**entrant.train, **budget},
                seed=stub.seed,
                out=out,
                progress=False,
            )
            settings = training.settings
            if settings["status"] == "interrupted":
                raise KeyboardInterrupt
    except UndampedError as error:
        return Score(**{**values, "refused": str(error)})
    result = settings["result"]
    values |= {
        "accuracy": {
            str(length): result[f"{length} steps"][task.metric]
            for length in options["test_lengths"]
        },
        "sequences": task.held_out["test"],
        "budget": budget.get("cpu_seconds", 0.0),
        "cpu_seconds": result["cpu_seconds"],
        "updates": result["steps"],
        "parameters": settings["model"]["parameters"],
    }
    return Score(**values)
