"""The options and the help of all commands, as named tuples.

A command passes its options to a function in `verbs`, which is imported only then: help needs
neither torch nor the models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

T = TypeVar("T")

app = typer.Typer(
    name="undamped",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Sequence models with long memory: train, compare and analyse them.\n\n"
    "Example: `undamped train copy unicornn task.delay=200 train.steps=2000`",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with the same keys.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="The setting seed=N.")]
RunFolder = Annotated[Path, typer.Argument(help="The run folder, or a name of `undamped zoo`.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE",
        help="A Python file that registers models, tasks or other entries; it is executed. Can be "
        "repeated.",
    ),
]


def complete_name(incomplete: str) -> list[str]:
    """Return the tasks and models that begin with the characters typed so far."""
    from undamped._base.registry import models, tasks

    return sorted({name for name in (*tasks, *models) if name.startswith(incomplete)})


def command(
    name: str, verb: str = "", group: typer.Typer = app, entries: str = "", seeded: bool = False
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a named tuple the signature and the help of a command.

    All commands have the option --with, which loads plugins before anything else.

    Args:
        name: The name of the command.
        verb: The module of `verbs` and the function in it that takes the tuple, such as
            "data.fetch"; by default both have the name of the command.
        group: The application to which the command is added.
        entries: A registry, such as "benchmarks", whose names the help of the argument `name`
            lists.
        seeded: Whether the command has the option --seed, for the setting seed=N.
    """

    def add(options: type[T]) -> type[T]:
        def run(*, with_: list[Path] | None = None, **values: Any) -> None:
            if (seed := values.pop("seed_", None)) is not None:
                values["words"] = [*(values["words"] or []), f"seed={seed}"]
            for path in with_ or []:
                from undamped._base.plugins import load_file

                load_file(path)
            module, _, function = (verb or f"{name}.{name}").partition(".")
            getattr(import_module(f"undamped.lab.cli.verbs.{module}"), function)(options(**values))

        fields: Any = options
        more = {"with_": Plugins, **({"seed_": Seed} if seeded else {})}
        hints = {**get_type_hints(options, include_extras=True), **more}
        defaults = {**fields._field_defaults, **dict.fromkeys(more)}
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    field,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=defaults.get(field, inspect.Parameter.empty),
                    annotation=hint,
                )
                for field, hint in hints.items()
            ]
        )
        run.__annotations__, run.__doc__ = hints, options.__doc__
        group.command(name, cls=_listing(entries) if entries else None)(run)
        return options

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
