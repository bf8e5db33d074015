"""`undamped reproduce`: a paper's experiment again, with our numbers beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Its settings, for example steps=500; 'undamped show NAME --kind experiment' "
            "lists them.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; none are drawn without it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Repeat an experiment of the literature; a wrong setting lists the right ones.

    Example: `undamped reproduce annuli epochs=60 --out pictures/`
    """
    from rich.markdown import Markdown

    from undamped._base.registry import experiments
    from undamped.lab.cli.members import read_settings, ticking
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.report.animation import animate

    run = experiments[name]
    settings = read_settings(name, run, words or [])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with ticking(f"reproduce {name}") as tick:
        result = run(**settings, progress=tick)
    if out is not None:
        for title, figure in result.figures().items():
            figure.savefig(out / f"{title}.png", dpi=110)
        for title, pictures in getattr(result, "animations", dict)().items():
            animate(pictures, out / f"{title}.gif")
    if as_json:
        print_json(result.to_dict())
    else:
        console().print(Markdown(result.markdown()))
