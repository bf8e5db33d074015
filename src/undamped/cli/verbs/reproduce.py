"""`undamped reproduce`: a paper's experiment again, with our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

Name = Literal["copy", "annuli", "densities", "mnist-odes", "lorenz96", "ucr"]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"Which experiment: {', '.join(get_args(Name))}.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Its settings, for example steps=500."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; none are drawn without it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Repeat an experiment of the literature; a wrong setting lists the right ones.

    Example: `undamped reproduce annuli epochs=60 --out pictures/`
    """
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from undamped.cli.screen import console, print_json
    from undamped.errors import OptionError
    from undamped.options import check

    run = _runner(name)
    settings = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise OptionError(
                f"reproduce: expected settings like key=value, got '{word}'. One experiment at a "
                "time."
            )
        settings[key] = value
    checked = check(name, run, settings, text=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(f"reproduce {name}")
        result = run(
            **checked,
            tick=lambda done: progress.update(line, description=f"reproduce {name}: {done} done"),
        )
    if out is not None:
        for title, figure in result.figures().items():
            figure.savefig(out / f"{title}.png", dpi=110)
    if as_json:
        print_json(result.to_dict())
    else:
        console().print(Markdown(result.markdown()))


def _runner(name: str) -> Callable[..., Any]:
    from undamped.options import unknown_name

    if name not in get_args(Name):
        raise unknown_name("experiment", name, get_args(Name))
    match cast(Name, name):
        case "copy":
            from undamped.experiments.copy_task import run
        case "annuli":
            from undamped.experiments.annuli import run
        case "mnist-odes":
            from undamped.experiments.mnist_odes import run
        case "densities":
            from undamped.experiments.densities import run
        case "lorenz96":
            from undamped.experiments.lorenz96 import run
        case "ucr":
            from undamped.experiments.ucr import run
    return run
