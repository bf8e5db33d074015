"""The memory benchmark: tasks that cannot be solved without memory, and what models reach on them.

A training is a task, a model, a length of the training sequences and a seed. Its scores are one
JSON file. Networks are trained on short sequences and tested on long ones, and later also trained
at the length of the test. Models without memory, whose scores are the certificates of a task, are
trained at the length of the test. Several processes can work in the same folder.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, get_type_hints

from undamped._base.errors import OptionError, RunError, UndampedError
from undamped._base.options import PositiveFloat, PositiveInt, convert, unknown_name
from undamped._base.registry import models as model_registry
from undamped._base.registry import tasks as task_registry
from undamped.lab.files import read_json, write_json, write_text
from undamped.lab.report.charts import panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.sweeps.folder import file_lock
from undamped.lab.tasks.events import LongTests
from undamped.lab.training import fit
from undamped.lab.training.plan import resolve
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
    "lstm": Entrant("lstm"),
    "gru": Entrant("gru"),
    "mingru": Entrant("mingru", {"num_layers": 3}),
    "lem": Entrant("lem", train={"learning_rate": 0.003}),
    "unicornn": Entrant("unicornn", {"num_layers": 2}),
    "linoss": Entrant("linoss", {"num_layers": 2}, {"learning_rate": 0.003}),
    "lru": Entrant("lru", {"num_layers": 2}, {"learning_rate": 0.003}),
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
    trained: int
    seed: int
    certificate: bool
    chance: float
    accuracy: dict[str, float]
    sequences: int = 0
    budget: float = 0.0
    cpu_seconds: float = 0.0
    updates: int = 0
    parameters: int = 0
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
        types = get_type_hints(cls)
        del types["accuracy"]
        try:
            values = {name: convert(kind, stored[name], name) for name, kind in types.items()}
            accuracy = {
                str(int(steps)): convert(float, value, "accuracy")
                for steps, value in dict(stored["accuracy"]).items()
            }
        except (OptionError, KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} is damaged: {error}. Remove it; it is computed again."
            ) from None
        return cls(**values, accuracy=accuracy)


def run(
    *,
    tasks: Sequence[str] = TASKS,
    models: Sequence[str] = tuple(ENTRANTS),
    seeds: PositiveInt = 3,
    cpu_seconds: PositiveFloat = 60.0,
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
        trained: Steps of the longest training sequences: 128 stands for sequences of 32 to 128
            steps, other numbers for sequences of exactly that length.
        tested: Steps of the test sequences after short training.
        minutes: No further training is started that would end after this time.
        out: The folder of the scores. Trainings whose scores are in it are not repeated.
        progress: Called with a line of text and the finished fraction.
    """
    if minutes is not None and 60 * minutes < cpu_seconds:
        raise OptionError(
            f"--minutes {minutes:g} is too short for one training of {cpu_seconds:g} CPU seconds. "
            "Set a longer time, or a smaller cpu_seconds=."
        )
    entrants = {name: ENTRANTS.get(name) or Entrant(name) for name in models}
    _check(tasks, entrants)
    folder = Path(out)
    _check_budgets(folder, cpu_seconds)
    plan = list(_plan(tasks, entrants, seeds, trained))
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


def _check_budgets(folder: Path, cpu_seconds: float) -> None:
    """Refuse a folder whose models had another CPU time: they could not be compared."""
    others = {score.budget for score in _stored(folder)} - {0.0, cpu_seconds}
    if others:
        raise OptionError(
            f"The models in {folder} were trained for {min(others):g} CPU seconds. Set cpu_seconds="
            f"{min(others):g} to continue, or choose another folder with --out."
        )


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


def _plan(
    tasks: Sequence[str], entrants: Mapping[str, Entrant], seeds: int, trained: Sequence[int]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield task, entrant, training length and seed: what the small table needs comes first."""
    # The first round has short training of networks and certificates at 1,024 steps.
    first = {SHORT: False, LENGTHS[1]: True}
    for small in (True, False):
        for seed, length in itertools.product(range(seeds), trained):
            for task, (name, entrant) in itertools.product(tasks, entrants.items()):
                if entrant.certificate and length == SHORT:
                    continue
                if length > entrant.longest:
                    continue
                if (first.get(length) == entrant.certificate) == small:
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


@dataclass(frozen=True)
class Summary:
    """The scores of a folder, by task, entrant and lengths."""

    scores: Sequence[Score]

    @property
    def tasks(self) -> list[str]:
        """The tasks in the order of the table."""
        return sorted({s.task for s in self.scores}, key=_position(TASKS))

    @property
    def networks(self) -> list[str]:
        """The entrants with memory in the order of the table."""
        names = {s.entrant for s in self.scores if not s.certificate}
        return sorted(names, key=_position(tuple(ENTRANTS)))

    @property
    def columns(self) -> list[int]:
        """The lengths that are shown after short training: 1,024 and 16,384 steps, if tested."""
        tested = sorted({int(n) for s in self.scores if s.trained == SHORT for n in s.accuracy})
        return [n for n in tested if n in (LENGTHS[1], LENGTHS[-1])] or tested[-2:]

    def values(self, task: str, entrant: str, trained: int, tested: int) -> list[float]:
        """Return the accuracies of all seeds."""
        return [
            s.accuracy[str(tested)]
            for s in self.scores
            if (s.task, s.entrant, s.trained) == (task, entrant, trained)
            and str(tested) in s.accuracy
        ]

    def mean(self, task: str, entrant: str, trained: int, tested: int) -> float | None:
        """Return the mean accuracy over seeds; None without scores."""
        values = self.values(task, entrant, trained, tested)
        return fmean(values) if values else None

    def certificate(self, task: str, tested: int) -> tuple[float, str]:
        """Return the best score without memory, and whose it is.

        Where no model without memory was trained at a length, the nearest shorter length counts:
        windows and memories of fixed size see a smaller part of a longer sequence.
        """
        records = [s for s in self.scores if s.task == task]
        best = max((s.chance for s in records), default=0.0), "chance"
        lengths = [
            s.trained for s in records if s.certificate and s.accuracy and s.trained <= tested
        ]
        for name in {s.entrant for s in records if s.certificate} if lengths else ():
            length = max(lengths)
            mean = self.mean(task, name, length, length)
            if mean is not None:
                best = max(best, (mean, name))
        return best

    def has_memory(self, task: str, entrant: str, trained: int, tested: int) -> bool:
        """Return whether a score is more than two standard errors above the certificate."""
        mean, level = self.mean(task, entrant, trained, tested), self.certificate(task, tested)[0]
        if mean is None:
            return False
        count = sum(
            s.sequences
            for s in self.scores
            if (s.task, s.entrant, s.trained) == (task, entrant, trained)
        )
        return mean > level + 2 * (level * (1 - level) / max(1, count)) ** 0.5


def _position(names: Sequence[str]) -> Any:
    return lambda name: (names.index(name) if name in names else len(names), name)


def summarise(scores: Sequence[Score]) -> Report:
    """Return tables and heat maps of the scores of a folder.

    Args:
        scores: The scores of finished trainings.
    """
    summary = Summary(scores)
    tables = [_certificates(summary)]
    tables += [_accuracies(summary, SHORT, tested) for tested in summary.columns]
    tables += [
        _accuracies(summary, length, length)
        for length in LENGTHS
        if any(s.trained == length and not s.certificate for s in scores)
    ]
    tables.append(_networks(summary))
    refusals = sorted({(s.entrant, s.refused) for s in scores if s.refused})
    if refusals:
        tables.append(Table(("model", "why it has no score"), refusals, text_columns=2))
    return Report(
        list(scores),
        tables,
        {
            **({"memory-benchmark": lambda: heat_map(summary)} if summary.columns else {}),
            "memory-tasks": lambda: draw_tasks(summary.tasks),
        },
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _certificates(summary: Summary) -> Table:
    """Return the scores without memory at 1,024 steps."""
    names = sorted({s.entrant for s in summary.scores if s.certificate})
    names.sort(key=_position(tuple(ENTRANTS)))
    tested = LENGTHS[1]
    rows = [
        (
            task,
            _percent(next(s.chance for s in summary.scores if s.task == task)),
            *(_percent(summary.mean(task, name, tested, tested)) for name in names),
        )
        for task in summary.tasks
    ]
    title = f"Without memory: accuracy in %, trained and tested at {tested:,} steps"
    return Table(("task", "chance", *names), rows, title)


def _accuracies(summary: Summary, trained: int, tested: int) -> Table:
    """Return the accuracies of all networks at one length; those without memory in brackets."""

    def cell(task: str, name: str) -> str:
        values = summary.values(task, name, trained, tested)
        if not values:
            return "–"
        text = _percent(fmean(values))
        if max(values) - min(values) > 0.02:
            text += f" ({_percent(min(values))} to {_percent(max(values))})"
        return text if summary.has_memory(task, name, trained, tested) else f"[{text}]"

    rows = [
        (
            task,
            _percent(summary.certificate(task, tested)[0]),
            *(cell(task, name) for name in summary.networks),
        )
        for task in summary.tasks
    ]
    origin = f"32 to {SHORT} steps" if trained == SHORT else f"{trained:,} steps"
    seeds = len({s.seed for s in summary.scores if not s.certificate and s.trained == trained})
    title = (
        f"Accuracy in % at {tested:,} steps after training at {origin}; mean of up to {seeds} "
        "seeds; in square brackets: not above the score without memory"
    )
    return Table(("task", "without memory", *summary.networks), rows, title)


def _ranks(summary: Summary, tested: int) -> dict[str, list[float]]:
    """Return the rank of every network on every task; equal scores have the mean of their ranks."""
    ranks: dict[str, list[float]] = {name: [] for name in summary.networks}
    for task in summary.tasks:
        means = {n: summary.mean(task, n, SHORT, tested) for n in summary.networks}
        values = [mean for mean in means.values() if mean is not None]
        for name, mean in means.items():
            if mean is not None:
                better = sum(value > mean for value in values)
                ranks[name].append(better + (values.count(mean) + 1) / 2)
    return ranks


def _networks(summary: Summary) -> Table:
    """Return rank, solved tasks and cost of every network, after short training."""
    columns = summary.columns
    ranks = _ranks(summary, columns[0]) if columns else {}

    def solved(name: str, tested: int) -> int:
        return sum(
            (summary.mean(task, name, SHORT, tested) or 0) >= SOLVED
            and summary.has_memory(task, name, SHORT, tested)
            for task in summary.tasks
        )

    rows = []
    for name in summary.networks:
        records = [s for s in summary.scores if s.entrant == name and s.accuracy]
        if records:
            rows.append(
                (
                    name,
                    f"{fmean(ranks[name]):.1f}" if ranks.get(name) else "–",
                    *(str(solved(name, tested)) for tested in columns),
                    f"{fmean(s.cpu_seconds for s in records):.0f}",
                    f"{fmean(s.updates for s in records):,.0f}",
                    f"{max(s.parameters for s in records):,}",
                )
            )
    header = ("model", "mean rank", *(f"solved at {n:,}" for n in columns), "CPU s", "updates")
    title = f"Networks after short training; solved: at least {100 * SOLVED:.0f} %"
    return Table((*header, "parameters"), rows, title)


def heat_map(summary: Summary) -> Any:
    """Return a figure: tasks × networks at two lengths, hatched where memory is not shown.

    Args:
        summary: The scores.
    """
    networks, tasks = summary.networks, summary.tasks
    width = 2 * (0.62 * len(networks) + 1.6)
    columns = summary.columns
    figure, axes = panels(width, 0.42 * len(tasks) + 2.2, columns=len(columns), sharey=True)
    for each, tested in zip(axes, columns, strict=True):
        for row, column in itertools.product(range(len(tasks)), range(len(networks))):
            task, name = tasks[row], networks[column]
            mean, level = summary.mean(task, name, SHORT, tested), summary.certificate(task, tested)
            above = summary.has_memory(task, name, SHORT, tested)
            fraction = (
                0.0 if mean is None else max(0.0, (mean - level[0]) / max(1e-9, 1 - level[0]))
            )
            each.add_patch(_square(column, row, fraction, above, mean is None))
            if mean is not None:
                colour = "white" if above and fraction > 0.5 else "black"
                text = f"{100 * mean:.0f}"
                each.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        each.set_xlim(-0.5, len(networks) - 0.5)
        each.set_ylim(len(tasks) - 0.5, -0.5)
        each.set_xticks(range(len(networks)), networks, rotation=60, ha="right")
        each.set_title(f"{tested:,} steps", fontsize=10)
    axes[0].set_yticks(range(len(tasks)), tasks)
    figure.suptitle(
        "Accuracy (%) after training at 32 to 128 steps; hatched: no better than without memory",
        fontsize=10,
    )
    return figure


def _square(column: int, row: int, fraction: float, above: bool, missing: bool) -> Any:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colour = colormaps["Blues"](0.1 + 0.8 * fraction) if above else "white"
    hatch = None if above or missing else "////"
    return Rectangle(
        (column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="lightgrey", hatch=hatch
    )


def draw_tasks(tasks: Sequence[str] = TASKS, steps: int = 64) -> Any:
    """Return a figure with one short sequence of every task, its marks and its answer.

    Args:
        tasks: Names of tasks.
        steps: Length of the sequences.
    """
    figure, axes = panels(11, 1.05 * -(-len(tasks) // 2) + 0.4, columns=2, rows=-(-len(tasks) // 2))
    for each, name in itertools.zip_longest(axes, tasks):
        if name is None:
            each.axis("off")
            continue
        task = task_registry[name](test_lengths=(steps,), sequences=1)
        batch = task.test_tasks()[f"{steps} steps"].batch("test", 0, 1)
        values = batch.inputs[:, 0].T.numpy()
        each.imshow(values, aspect="auto", cmap="Greys", interpolation="nearest")
        if hasattr(task, "symbols"):
            marks = values[task.symbols].nonzero()[0]
            each.plot(marks, values[: task.symbols, marks].argmax(0), "o", ms=4, color="tab:red")
        each.axvline(steps / 2 - 0.5, color="tab:blue", lw=0.8)
        each.set_yticks([])
        each.tick_params(labelsize=6)
        each.set_title(f"{name}: answer {int(batch.targets[0])}", fontsize=8, loc="left", pad=2)
    return figure


def paper(report: Report) -> str:
    """Return a short paper about the benchmark, with the tables of a folder.

    Args:
        report: The report of the folder.
    """
    text = files("undamped.lab.benchmarks").joinpath("memory_paper.md").read_text(encoding="utf-8")
    networks = [score for score in report.records if not score.certificate]
    values = {
        "seconds": f"{max((score.cpu_seconds for score in networks), default=0):.0f}",
        "trained": ", ".join(f"{n:,}" for n in sorted({score.trained for score in networks})),
        "sequences": f"{max((score.sequences for score in networks), default=0):,}",
        "tables": report.markdown().strip(),
    }
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
