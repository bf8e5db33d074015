"""Verbs that run a member by its name: help lists the members, words are a member's settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand


def lists(kind: str) -> type[TyperCommand]:
    """Return a command whose help names the members of a registry, which are looked up only then.

    Args:
        kind: What the registry is called in `undamped._base.registry`, for example "benchmarks".
    """

    class Listing(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            from undamped._base import registry

            for parameter in self.params:
                if isinstance(parameter, TyperArgument) and parameter.name == "name":
                    parameter.help = f"Which one: {', '.join(getattr(registry, kind))}."
            super().format_help(ctx, formatter)

    return Listing


def takes_files(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the option --with, which loads members from files before anything else.

    Args:
        verb: The function of the verb.
    """

    @wraps(verb)
    def run(*args: Any, with_: list[Path] | None = None, **options: Any) -> None:
        for path in with_ or []:
            from undamped._base.plugins import load_file

            load_file(path)
        verb(*args, **options)

    files = Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="A Python file with models, tasks and other members of your own; it is run. May "
            "be given several times.",
        ),
    ]
    hints = {**get_type_hints(verb, include_extras=True), "with_": files}
    own = inspect.Parameter("with_", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [*inspect.signature(verb).parameters.values(), own]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    )
    run.__annotations__ = hints
    return run


def read_settings(name: str, member: Any, words: list[str]) -> dict[str, Any]:
    """Read `key=value` words as settings of a member, and check them.

    Args:
        name: The name of the member.
        member: The function it stands for.
        words: What was written.
    """
    from undamped._base.errors import OptionError
    from undamped._base.options import check_against, settings_of

    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise OptionError(
                f"{name}: expected settings like key=value, got '{word}'. One at a time; "
                f"'undamped show {name}' lists its settings."
            )
        settings[key] = value
    return check_against(name, settings_of(member), settings, text=True)


@contextmanager
def ticking(title: str) -> Iterator[Callable[..., None]]:
    """Yield a function that says what was done last, beside a clock on standard error.

    Whoever knows what share of all is done tells it as a second argument, and a bar is drawn.

    Args:
        title: What the command is called.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(title, total=None)

        def tick(done: str, share: float | None = None) -> None:
            progress.update(line, description=f"{title}: {done}")
            if share is not None:
                progress.update(line, total=1.0, completed=share)

        yield tick
