"""The command line: one file per verb, put together here."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

from undamped._base.errors import DataWarning, UndampedError, printable
from undamped.lab.cli.members import lists, takes_files
from undamped.lab.cli.verbs import (
    animate,
    backtest,
    bench,
    compare,
    data,
    data_check,
    diagnose,
    export,
    list_,
    predict,
    report,
    reproduce,
    resume,
    show,
    stream,
    sweep,
    train,
)
from undamped.version import __version__

app = typer.Typer(
    name="undamped",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Networks that carry information a long way: train, compare, look inside.\n\n"
    "Example: `undamped train copy unicornn task.delay=200 train.steps=2000`",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"undamped {__version__}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and end.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Take what stands before the verb."""


app.command("list")(takes_files(list_.list_members))
app.command("show")(takes_files(show.show))
app.command("train")(takes_files(train.train))
app.command("compare")(takes_files(compare.compare))
app.command("backtest")(takes_files(backtest.backtest))
app.command("sweep")(takes_files(sweep.sweep))
app.command("resume")(takes_files(resume.resume))
app.command("predict")(takes_files(predict.predict))
app.command("animate")(takes_files(animate.animate))
app.command("export")(takes_files(export.export))
app.command("stream")(takes_files(stream.stream))
app.command("diagnose")(takes_files(diagnose.diagnose))
app.command("report")(takes_files(report.report))
data.app.command("check")(takes_files(data_check.check))
app.add_typer(data.app, name="data")
app.command("bench", cls=lists("benchmarks"))(takes_files(bench.bench))
app.command("reproduce", cls=lists("experiments"))(takes_files(reproduce.reproduce))

# What torch says when there is no more memory; it has no error of its own for the CPU's.
_NO_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "DefaultCPUAllocator",
    "out of memory",
    "Storage size calculation overflowed",
)


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    plain = category in (UserWarning, DataWarning)
    sys.stderr.write(printable(f"{message if plain else f'{category.__name__}: {message}'}\n"))


def _run() -> None:
    """Run the command and write all of its output, as long as somebody reads it."""
    try:
        try:
            app()
        except SystemExit:
            if sys.stdout is not None:
                sys.stdout.flush()
            raise
    except (SystemExit, BrokenPipeError) as ended:
        # Nobody reads on, as in `undamped list | head`: that is no failure.
        if not isinstance(ended, BrokenPipeError) and not isinstance(
            ended.__context__, BrokenPipeError
        ):
            raise
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def main() -> None:
    """Run the command line; what a person did wrong ends in one sentence and exit code 2."""
    warnings.showwarning = _show_warning
    for output in (sys.stdout, sys.stderr):
        # A terminal that has no such letter shows its number instead.
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")
    try:
        _run()
    except UndampedError as error:
        from undamped.lab.training.process_group import is_silent

        if not is_silent():
            sys.stderr.write(printable(f"{error}\n"))
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(w in str(error) for w in _NO_MEMORY):
            raise
        sys.stderr.write(
            "memory: expected enough for this model and this data, got too little. Choose smaller "
            "sizes, a smaller train.batch_size or shorter sequences.\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(
            printable(
                f"{place}expected to read or write here, got '{error.strerror}'. "
                "Check the path, its permissions and the free space.\n"
            )
        )
        sys.exit(2)
