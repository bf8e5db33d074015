"""The signatures and the help of all commands.

A command runs the function of the same name in a module of `verbs`, which is imported only then:
help needs neither torch nor the models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

app = typer.Typer(
    name="undamped",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Sequence models with long memory: train, compare and analyse them.\n\n"
    "Example: `undamped train copy unicornn task.delay=200 train.steps=2000`",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with the same keys.")]
RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE",
        help="A Python file that registers models, tasks or other entries; it is executed. Can be "
        "repeated.",
    ),
]


def command(
    name: str, module: str = "", group: typer.Typer = app, entries: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a function the signature and the help of a command.

    All commands have the option --with, which loads plugins before anything else.

    Args:
        name: The name of the command.
        module: The module of `verbs` with the function that is run; by default `name`.
        group: The application to which the command is added.
        entries: A registry, such as "benchmarks", whose names the help of the argument `name`
            lists.
    """

    def add(signature: Callable[..., None]) -> Callable[..., None]:
        @wraps(signature)
        def run(*, with_: list[Path] | None = None, **options: Any) -> None:
            for path in with_ or []:
                from undamped._base.outside import load_file

                load_file(path)
            verb = import_module(f"undamped.lab.cli.verbs.{module or name}")
            getattr(verb, signature.__name__)(**options)

        hints = {**get_type_hints(signature, include_extras=True), "with_": Plugins}
        plugins = inspect.Parameter("with_", inspect.Parameter.KEYWORD_ONLY, default=None)
        parameters = [*inspect.signature(signature).parameters.values(), plugins]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
        )
        run.__annotations__ = hints
        group.command(name, cls=_listing(entries) if entries else None)(run)
        return signature

    return add


def _listing(entries: str) -> type[TyperCommand]:
    """Return a command whose help has the names of a registry, which is read only then."""

    class Listing(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            from undamped._base import registry

            for parameter in self.params:
                if isinstance(parameter, TyperArgument) and parameter.name == "name":
                    parameter.help = f"One of: {', '.join(getattr(registry, entries))}."
            super().format_help(ctx, formatter)

    return Listing
