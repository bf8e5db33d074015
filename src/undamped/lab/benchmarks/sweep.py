"""Sweeps shared by two processes: throughput, and robustness against `kill -9`.

First one process and then two work at a sweep for the same seconds, in turns. Then two work at one
while either of them is killed at random moments and replaced; every trial is compared, bit for bit,
with an undisturbed sweep. Processes have one thread each.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped.lab.benchmarks.forks import forks
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.sweeps import Plan, SweepFolder, sweep
from undamped.lab.sweeps.sweep import open_study
from undamped.lab.sweeps.trials import trials_of

TARGET = 1.8
"""Smallest ratio of the trials of two processes to those of one."""
PLAN = Plan(
    "adding",
    "rnn",
    {
        "task": {"length": 60},
        "model": {"hidden_size": 24},
        "train": {"steps": 300, "validate_every": 50, "batch_size": 64},
    },
    {"train.learning_rate": "1e-4..1e-2:log", "model.bias": [True, False]},
    sampler="random",
    pruner="none",
)
UNLIMITED = 1_000_000
HEADER = ("what", "one process", "two", "ratio", "target")


@dataclass(frozen=True)
class Round:
    """One and two processes for the same seconds.

    Args:
        single: Trials that one process finished.
        pair: Trials that two finished.
        cpu_single: CPU seconds of a trial's training, with one process.
        cpu_pair: The same with two.
    """

    single: int
    pair: int
    cpu_single: float
    cpu_pair: float


@dataclass(frozen=True)
class KillOutcome:
    """The trials of a sweep whose workers were killed.

    Args:
        kills: How often a process was killed.
        trials: Trials of the sweep.
        missing: Number of trials that are missing or unfinished.
        duplicates: Number of trials that were trained twice.
        different: Number of trials with other weights than in an undisturbed sweep.
    """

    kills: int
    trials: int
    missing: int
    duplicates: int
    different: int


@benchmark("sweep")
def run(
    *,
    seconds: float = 20.0,
    rounds: int = 3,
    kills: int = 20,
    storage: str = "",
    seed: int = 0,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Two processes at one sweep: their trials beside those of one, and after many `kill -9`.

    Args:
        seconds: Duration of a round.
        rounds: How often one and two processes are compared.
        kills: How often a process is killed.
        storage: URL of a database; by default the journal of a folder.
        seed: Seed of the random moments.
        quick: A few seconds and one kill.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    seconds, rounds, kills = (1.0, 1, 1) if quick else (seconds, rounds, kills)
    with tempfile.TemporaryDirectory(prefix="undamped-sweep-") as folder:
        workers = _Workers(Path(folder), storage or None)
        records = []
        for number in range(rounds):
            single, cpu_single = workers.count_trials(f"one-{number}", 1, seconds)
            progress(f"round {number + 1}, one process")
            pair, cpu_pair = workers.count_trials(f"two-{number}", 2, seconds)
            progress(f"round {number + 1}, two processes")
            records.append(Round(single, pair, cpu_single, cpu_pair))
        trial_seconds = seconds / max(1, statistics.median(record.single for record in records))
        generator = random.Random(seed)
        outcome = workers.kill_workers("killed", kills, 2 * trial_seconds, generator, progress)
        progress("undisturbed")
    name = "A database" if storage else "The journal of a folder"
    title = f"{name}, rounds of {seconds:g} s, medians of {rounds}."
    note = (
        f"Killed {kills} times at random moments: of {outcome.trials} trials {outcome.missing} are "
        f"missing, {outcome.duplicates} trained twice, {outcome.different} with other bits than "
        "undisturbed."
    )
    ratio = statistics.median(record.pair / max(1, record.single) for record in records)
    return Report(
        records,
        [Table(HEADER, _rows(records, ratio), title, [note])],
        {"sweep": lambda: _figure(records, seconds)},
        {"ratio": ratio, "killed": outcome},
        {"storage": name},
    )


def _rows(records: Sequence[Round], ratio: float) -> list[tuple[str, ...]]:
    single, pair, cpu_single, cpu_pair = (
        statistics.median(getattr(record, name) for record in records)
        for name in ("single", "pair", "cpu_single", "cpu_pair")
    )
    target = "met" if ratio >= TARGET else f"below {TARGET:g}"
    cpu_ratio = f"{cpu_pair / cpu_single:.2f}" if cpu_single else ""
    return [
        ("trials", f"{single:g}", f"{pair:g}", f"{ratio:.2f}", target),
        ("CPU seconds per trial", f"{cpu_single:.2f}", f"{cpu_pair:.2f}", cpu_ratio, ""),
    ]


def _figure(records: Sequence[Round], seconds: float) -> Any:
    figure, (axes,) = panels(6, 3)
    numbers = range(1, len(records) + 1)
    for shift, name, colour in ((-0.2, "single", "#56b4e9"), (0.2, "pair", "#0072b2")):
        heights = [getattr(record, name) for record in records]
        legend = "one process" if name == "single" else "two processes"
        axes.bar([n + shift for n in numbers], heights, 0.4, label=legend, color=colour)
    for number, record in zip(numbers, records, strict=True):
        axes.hlines(TARGET * record.single, number, number + 0.4, color="#d55e00")
    axes.plot([], [], color="#d55e00", label=f"{TARGET:g} times one process")
    axes.set_xticks(numbers)
    label(axes, "round", f"trials in {seconds:g} s")
    return figure


@dataclass(frozen=True)
class _Process:
    """A worker process, and the event it sets when its first trial starts."""

    process: Any
    started: Any

    def kill(self) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


@dataclass
class _Workers:
    """Sweeps in subfolders of one folder, and processes that work at them."""

    root: Path
    url: str | None

    def __post_init__(self) -> None:
        # Forked processes start fast, so that one killed at a random moment is training.
        self.processes = forks()

    def _create(self, name: str) -> SweepFolder:
        # The name of a folder is the name of a sweep in a database.
        path = self.root / f"{self.root.name}-{name}"
        return SweepFolder.join(path, PLAN, "mse", False, self.url)

    def _start(self, folder: SweepFolder, trials: int = UNLIMITED) -> _Process:
        started = self.processes.Event()
        process = self.processes.Process(
            target=_work, args=(str(folder.path), trials, self.url, started), daemon=True
        )
        process.start()
        return _Process(process, started)

    @contextlib.contextmanager
    def _temporary(self, folder: SweepFolder) -> Iterator[None]:
        """Delete a sweep from the database afterwards."""
        try:
            yield
        finally:
            if self.url is not None:
                import optuna

                study = open_study(folder, self.url)
                optuna.delete_study(study_name=study.study_name, storage=study._storage)

    def count_trials(self, name: str, count: int, seconds: float) -> tuple[int, float]:
        """Return the number of trials that some processes finish, and the CPU seconds of each."""
        folder = self._create(name)
        with self._temporary(folder):
            workers = [self._start(folder) for _ in range(count)]
            while len(self._finished(folder)) < 2 * count:  # the first trial takes longer
                time.sleep(0.1)
            before = len(self._finished(folder))
            time.sleep(seconds)
            finished = self._finished(folder)[before:]
            for worker in workers:
                worker.kill()
            runs = [folder.run(number) for number in finished]
            cpu = [run.result["cpu_seconds"] for run in runs if run is not None and run.result]
        return len(finished), statistics.fmean(cpu) if cpu else 0.0

    def _finished(self, folder: SweepFolder) -> list[int]:
        trials = open_study(folder, self.url).get_trials(deepcopy=False)
        return [trial.number for trial in trials if trial.state.name == "COMPLETE"]

    def kill_workers(
        self, name: str, kills: int, longest: float, generator: random.Random, progress: Progress
    ) -> KillOutcome:
        """Kill workers at random moments and compare the trials with an undisturbed sweep."""
        folder = self._create(name)
        with self._temporary(folder):
            workers = [self._start(folder) for _ in range(2)]
            for number in range(kills):
                victim = generator.randrange(2)
                workers[victim].started.wait()
                time.sleep(generator.uniform(0.0, longest))
                workers[victim].kill()
                workers[victim] = self._start(folder)
                progress(f"kill {number + 1}")
            for worker in workers:
                worker.kill()
            count = len(open_study(folder, self.url).get_trials(deepcopy=False))
            self._start_and_wait(folder, count)
            trials = trials_of(folder, open_study(folder, self.url))
            reference = self._create("undisturbed")
            with self._temporary(reference):
                self._start_and_wait(reference, count)
        finished = {trial.number for trial in trials if trial.state == "finished"}
        runs = [len(list(folder.trial(n).glob("*/run.json"))) for n in range(count)]
        return KillOutcome(
            kills=kills,
            trials=count,
            missing=len(set(range(count)) - finished),
            duplicates=sum(number > 1 for number in runs),
            different=sum(_weights(folder, n) != _weights(reference, n) for n in range(count)),
        )

    def _start_and_wait(self, folder: SweepFolder, trials: int) -> None:
        worker = self._start(folder, trials)
        worker.process.join()


def _work(path: str, trials: int, url: str | None, started: Any) -> None:
    """Work at a sweep."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    sweep(SweepFolder.open(path), trials, url=url, progress=lambda _: started.set())


def _weights(folder: SweepFolder, number: int) -> bytes | None:
    run = folder.run(number)
    return None if run is None else (run.path / "model.safetensors").read_bytes()
