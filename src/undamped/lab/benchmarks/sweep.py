"""Sweeps shared by two processes: how many more trials they do, and what `kill -9` costs.

First one process and then two work at a sweep for the same seconds, in turns. Then two work at one
while either of them is killed at random moments and another takes its place; what became of every
trial is compared, bit for bit, with a sweep that nobody disturbed. Processes have one thread each.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.forks import forks
from undamped.lab.benchmarks.tables import markdown_table, terminal_table
from undamped.lab.sweeps import Plan, SweepFolder, sweep
from undamped.lab.sweeps.sweep import open_study
from undamped.lab.sweeps.trials import trials_of

WANTED = 1.8
"""How many times the trials of one process two should do."""
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
NEVER = 1_000_000  # trials: more than anybody does
HEADER = ("what", "one process", "two", "ratio", "wanted")


@dataclass(frozen=True)
class Round:
    """One and two processes for the same seconds.

    Args:
        alone: Trials that one process finished.
        together: Trials that two finished.
        cpu_alone: Processor seconds of a trial's training, with one process.
        cpu_together: The same with two.
    """

    alone: int
    together: int
    cpu_alone: float
    cpu_together: float


@dataclass(frozen=True)
class SweepBenchmark:
    """What two processes do, and what killing them costs.

    Args:
        seconds: How long each round lasted.
        storage: Where the trials were written down.
        rounds: The rounds.
        kills: How often a process was killed.
        trials: Trials of the sweep in which that happened.
        lost: How many of those are missing or unfinished.
        twice: How many were trained twice.
        other_bits: How many have other weights than in a sweep that nobody disturbed.
    """

    seconds: float
    storage: str
    rounds: tuple[Round, ...]
    kills: int
    trials: int
    lost: int
    twice: int
    other_bits: int

    @property
    def ratio(self) -> float:
        """How many times the trials of one process two did; the median of all rounds."""
        return statistics.median(one.together / max(1, one.alone) for one in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**asdict(self), "ratio": self.ratio}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the lines of a table."""
        alone, together, cpu_alone, cpu_together = (
            statistics.median(getattr(one, name) for one in self.rounds)
            for name in ("alone", "together", "cpu_alone", "cpu_together")
        )
        met = "met" if self.ratio >= WANTED else f"below {WANTED:g}"
        return [
            ("trials", f"{alone:g}", f"{together:g}", f"{self.ratio:.2f}", met),
            (
                "processor seconds a trial",
                f"{cpu_alone:.2f}",
                f"{cpu_together:.2f}",
                f"{cpu_together / cpu_alone:.2f}" if cpu_alone else "",
                "",
            ),
        ]

    @property
    def title(self) -> str:
        """What was measured."""
        return f"{self.storage}, rounds of {self.seconds:g} s, medians of {len(self.rounds)}."

    @property
    def disturbed(self) -> str:
        """What became of the trials, in a sentence."""
        return (
            f"Killed {self.kills} times at random moments: of {self.trials} trials {self.lost} "
            f"lost, {self.twice} trained twice, {self.other_bits} with other bits than undisturbed."
        )

    def markdown(self) -> str:
        """Return the table for a document."""
        return f"{self.title}\n\n{markdown_table(HEADER, self.rows())}\n\n{self.disturbed}"

    def summary(self) -> Any:
        """Return a table for the terminal."""
        return terminal_table(HEADER, self.rows(), self.title, self.disturbed)

    def figures(self) -> dict[str, Any]:
        """Return a picture: the trials of every round, and what is wanted."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3), layout="constrained")
        axis, places = figure.subplots(), list(range(1, len(self.rounds) + 1))
        axis.bar([p - 0.2 for p in places], [one.alone for one in self.rounds], 0.4,
                 label="one process", color="#56b4e9")  # fmt: skip
        axis.bar([p + 0.2 for p in places], [one.together for one in self.rounds], 0.4,
                 label="two processes", color="#0072b2")  # fmt: skip
        for place, one in zip(places, self.rounds, strict=True):
            axis.hlines(WANTED * one.alone, place, place + 0.4, color="#d55e00")
        axis.plot([], [], color="#d55e00", label=f"{WANTED:g} times one process")
        axis.set_xticks(places)
        axis.set_xlabel("round")
        axis.set_ylabel(f"trials in {self.seconds:g} s")
        axis.legend(fontsize=8)
        return {"sweep": figure}


@benchmarks.register("sweep")
def run(
    *,
    seconds: float = 20.0,
    rounds: int = 3,
    kills: int = 20,
    storage: str = "",
    seed: int = 0,
    quick: bool = False,
    tick: Callable[[str], None] | None = None,
) -> SweepBenchmark:
    """Two processes at one sweep: their trials beside those of one, and after many `kill -9`.

    Args:
        seconds: How long each round lasts.
        rounds: How often one and two processes are compared.
        kills: How often a process is killed.
        storage: A database; the journal of a folder if none is given.
        seed: Which random moments.
        quick: A few seconds and one kill.
        tick: Called with a name after every part, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    seconds, rounds, kills = (1.0, 1, 1) if quick else (seconds, rounds, kills)
    tell = tick or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix="undamped-sweep-") as place:
        bench = _Bench(Path(place), storage or None)
        found = []
        for number in range(rounds):
            alone, cpu_alone = bench.counted(f"one-{number}", 1, seconds)
            tell(f"round {number + 1}, one process")
            together, cpu_together = bench.counted(f"two-{number}", 2, seconds)
            tell(f"round {number + 1}, two processes")
            found.append(Round(alone, together, cpu_alone, cpu_together))
        usual = seconds / max(1, statistics.median(one.alone for one in found))
        disturbed = bench.disturbed("killed", kills, 2 * usual, random.Random(seed), tell)
        tell("undisturbed")
    name = "A database" if storage else "The journal of a folder"
    return SweepBenchmark(seconds, name, tuple(found), kills, *disturbed)


@dataclass(frozen=True)
class _Process:
    """A process at work, and what it says when it begins; gone if nobody kept it."""

    process: Any
    begins: Any

    def kill(self) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


@dataclass
class _Bench:
    """Sweeps in folders of one place, and processes that work at them."""

    place: Path
    url: str | None

    def __post_init__(self) -> None:
        # A process that is killed at a random moment is then one that trains.
        self.processes = forks()

    def _begun(self, name: str) -> SweepFolder:
        # The name of a folder is the name of a sweep in a database.
        path = self.place / f"{self.place.name}-{name}"
        return SweepFolder.join(path, PLAN, "mse", False, self.url)

    def _start(self, folder: SweepFolder, trials: int = NEVER) -> _Process:
        ready = self.processes.Event()
        process = self.processes.Process(
            target=_work, args=(str(folder.path), trials, self.url, ready), daemon=True
        )
        process.start()
        return _Process(process, ready)

    @contextlib.contextmanager
    def _forgotten(self, folder: SweepFolder) -> Iterator[None]:
        """Take a sweep out of the database when it is over."""
        try:
            yield
        finally:
            if self.url is not None:
                import optuna

                study = open_study(folder, self.url)
                optuna.delete_study(study_name=study.study_name, storage=study._storage)

    def counted(self, name: str, count: int, seconds: float) -> tuple[int, float]:
        """Return how many trials some processes finish, and the processor seconds of each."""
        folder = self._begun(name)
        with self._forgotten(folder):
            started = [self._start(folder) for _ in range(count)]
            while len(self._finished(folder)) < 2 * count:  # the first of a process takes longer
                time.sleep(0.1)
            before = len(self._finished(folder))
            time.sleep(seconds)
            done = self._finished(folder)[before:]
            for one in started:
                one.kill()
            runs = [folder.run(number) for number in done]
            cpu = [one.result["cpu_seconds"] for one in runs if one is not None and one.result]
        return len(done), statistics.fmean(cpu) if cpu else 0.0

    def _finished(self, folder: SweepFolder) -> list[int]:
        found = open_study(folder, self.url).get_trials(deepcopy=False)
        return [one.number for one in found if one.state.name == "COMPLETE"]

    def disturbed(
        self,
        name: str,
        kills: int,
        longest: float,
        moments: random.Random,
        tell: Callable[[str], None],
    ) -> tuple[int, int, int, int]:
        """Return trials, and how many of them were lost, trained twice, or have other bits."""
        folder = self._begun(name)
        with self._forgotten(folder):
            workers = [self._start(folder) for _ in range(2)]
            for number in range(kills):
                victim = moments.randrange(2)
                workers[victim].begins.wait()
                time.sleep(moments.uniform(0.0, longest))
                workers[victim].kill()
                workers[victim] = self._start(folder)
                tell(f"kill {number + 1}")
            for worker in workers:
                worker.kill()
            begun = len(open_study(folder, self.url).get_trials(deepcopy=False))
            self._start_and_wait(folder, begun)
            trials = trials_of(folder, open_study(folder, self.url))
            whole = self._begun("undisturbed")
            with self._forgotten(whole):
                self._start_and_wait(whole, begun)
        finished = {one.number for one in trials if one.state == "finished"}
        runs = [len(list(folder.trial(n).glob("*/run.json"))) for n in range(begun)]
        other = sum(_bits(folder, number) != _bits(whole, number) for number in range(begun))
        lost = len(set(range(begun)) - finished)
        return begun, lost, sum(count > 1 for count in runs), other

    def _start_and_wait(self, folder: SweepFolder, trials: int) -> None:
        worker = self._start(folder, trials)
        worker.process.join()


def _work(path: str, trials: int, url: str | None, ready: Any) -> None:
    """Be a process of a sweep."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this one
    sweep(SweepFolder.open(path), trials, url=url, tick=lambda _: ready.set())


def _bits(folder: SweepFolder, number: int) -> bytes | None:
    found = folder.run(number)
    return None if found is None else (found.path / "model.safetensors").read_bytes()
