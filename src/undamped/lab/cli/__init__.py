"""The command line: options and help in `commands`, implementations in `verbs`."""

from __future__ import annotations

import io
import os
import sys
import warnings
from importlib import import_module
from typing import Annotated

import typer

from undamped._base.errors import DataWarning, UndampedError, printable
from undamped.lab.cli.commands import app
from undamped.version import __version__

__all__ = ["app", "main"]

for _module in ("training", "runs", "catalogue"):  # the order of the help
    import_module(f"undamped.lab.cli.commands.{_module}")


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"undamped {__version__}, torch {version('torch')}")
        raise typer.Exit


@app.command("help")
def _help(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command: data fetch.")
    ] = None,
) -> None:
    """Print the help of a command."""
    app([*(words or []), "--help"], prog_name=context.find_root().info_name)


@app.callback()
def _common_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Declare the options before the name of a command."""


# Messages of torch when the memory is used up; the CPU has no error class of its own.
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


def _is_silent() -> bool:
    """Return whether another process prints errors; torch is imported only if there are several."""
    if not {"LOCAL_RANK", "SLURM_LOCALID"} & os.environ.keys():
        return False
    from undamped.lab.training.devices import is_silent

    return is_silent()


def _run() -> None:
    """Run the command and flush its output; a reader that closes the pipe is no error."""
    try:
        try:
            app(None if sys.argv[1:] else ["--help"])
        except SystemExit:
            if sys.stdout is not None:
                sys.stdout.flush()
            raise
    except (SystemExit, BrokenPipeError) as error:
        # The pipe is closed in `undamped list | head`.
        if not any(isinstance(e, BrokenPipeError) for e in (error, error.__context__)):
            raise
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def main() -> None:
    """Run the command line; an error of the user ends in one message and exit code 2."""
    warnings.showwarning = _show_warning
    for output in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot encode are printed as escapes.
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")
    try:
        _run()
    except UndampedError as error:
        if not _is_silent():
            sys.stderr.write(printable(f"{error}\n"))
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(w in str(error) for w in _NO_MEMORY):
            raise
        sys.stderr.write(
            "There is not enough memory for this model and this data. Use smaller sizes, a smaller "
            "train.batch_size or shorter sequences.\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(
            printable(
                f"{path}{error.strerror}. Check the path, its permissions and the free space.\n"
            )
        )
        sys.exit(2)
