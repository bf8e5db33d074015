"""`undamped data check FILE`: what is in a file of recordings, before anything is trained."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from undamped.lab.data.recordings.findings import Findings
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.training.doubtful_labels import LabelCheck

WIDTH, SHOWN, MOST_LABELS = 60, 3, 20
_BLOCKS = "▁▂▃▄▅▆▇█"
HORIZON = "horizon"


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [KEY=VALUE]...",
            help="A file or folder of recordings, and what its columns are: target=, id=, time=, "
            "group=, channels=, layout=; how values are written: decimal=, na=, dayfirst=, "
            "duplicates=; and horizon= for forecasts.",
        ),
    ],
    figure: Annotated[
        Path | None, typer.Option(help="Draw what was found into this PNG or SVG file.")
    ] = None,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="List labels to look at: those that a bank of oscillators, which has learnt all "
            "other series, does not believe.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Say in plain words what is in a file of recordings: series, labels, gaps, suspicious things.

    Example: `undamped data check walks.csv target=gait id=walk`
    """
    from undamped.lab.cli.figures import check_figure
    from undamped.lab.cli.screen import print_json
    from undamped.lab.data.recordings.findings import look_at
    from undamped.lab.data.recordings.read import read_recordings

    check_figure(figure)
    file, options, forecast = _read_words(words)
    series_set = read_recordings(file, **options, forecast=forecast)
    found = look_at(series_set)
    checked = _check_labels(series_set) if labels else None
    if figure is not None:
        from undamped.lab.cli.data_figure import draw_recordings

        draw_recordings(figure, series_set, found)
    if as_json:
        beside = {} if checked is None else {"labels": checked.to_dict()}
        print_json({"file": file, "columns": series_set.columns, **found.to_dict(), **beside})
        return
    _print(file, series_set, found, figure)
    if checked is not None:
        _print_labels(checked)
    _print_next(words, series_set)


def _check_labels(series_set: SeriesSet) -> LabelCheck:
    from undamped.lab.cli.stages import stages
    from undamped.lab.training.doubtful_labels import check_labels

    with stages("labels") as stage:
        stage("a bank learns all series")
        return check_labels(series_set)


def _print_labels(checked: LabelCheck) -> None:
    from undamped.lab.cli.screen import console

    screen = console()
    screen.print("\n[bold]Labels to look at[/]")
    for sentence in checked.sentences:
        screen.print(f"  {sentence}", soft_wrap=True, markup=False)
    for one in checked.doubtful[:MOST_LABELS]:
        screen.print(
            f"  {one.id}: labelled {one.label} (chance {one.chance:.2g}), looks like {one.instead} "
            f"({one.instead_chance:.2g})",
            soft_wrap=True,
            markup=False,
        )
    if len(checked.doubtful) > MOST_LABELS:
        screen.print(f"  … and {len(checked.doubtful) - MOST_LABELS:,} more; --json has all.")


def _read_words(words: list[str]) -> tuple[str, dict[str, Any], bool]:
    """Return the file, the options for reading it, and whether it is for a forecast."""
    from undamped._base.errors import OptionError
    from undamped._base.options import check_against, options_in, unknown_name
    from undamped.lab.data.recordings.options import ReadingOptions

    files = [word for word in words if "=" not in word]
    if len(files) != 1:
        raise OptionError(
            f"'undamped data check' needs one file or folder, got {len(files)}. Settings look like "
            "target=COLUMN."
        )
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    names = [*ReadingOptions.__annotations__, HORIZON]
    for name in settings:
        if name not in names:
            raise unknown_name("setting", name, names)
    forecast = settings.pop(HORIZON, None) is not None
    options = check_against("recordings", options_in(ReadingOptions), settings, text=True)
    if forecast:
        options.pop("target", None)  # for a forecast it is a channel
    return files[0], options, forecast


def _print(file: str, series_set: SeriesSet, found: Findings, figure: Path | None) -> None:
    from undamped.lab.cli.screen import console, print_warnings

    screen = console()
    screen.print(f"{file}: {found.summary}", soft_wrap=True, markup=False)
    for fact in found.facts:
        screen.print(f"  {fact}", soft_wrap=True, markup=False)
    print_warnings(screen, found.warnings)
    if found.classes:
        screen.print("")
        _print_classes(screen, found.classes)
    if figure is not None:
        screen.print(f"Figure: {figure}", soft_wrap=True, markup=False)
        return
    screen.print("")
    for number in range(min(SHOWN, len(series_set))):
        one = series_set.series[number]
        for place, channel in enumerate(series_set.channels[:SHOWN]):
            name = series_set.ids[number] if place == 0 else ""
            line = sparkline(one[:, place])
            screen.print(f"  {name:>12.12} {channel:<10.10} {line}", markup=False, no_wrap=True)


def _print_classes(screen: Any, classes: dict[str, int]) -> None:
    from rich.markup import escape

    most = max(classes.values())
    for name, count in list(classes.items())[:20]:
        bar = "█" * max(1, round(32 * count / most))
        screen.print(f"  {escape(f'{name:>12.12}')} {count:>8,} [blue]{bar}[/]")


def _print_next(words: list[str], series_set: SeriesSet) -> None:
    from rich.markup import escape

    from undamped.lab.cli.screen import console

    file, *settings = sorted(words, key=lambda word: "=" in word)
    if series_set.targets is None and not any(word.startswith(HORIZON) for word in settings):
        settings.append("horizon=10")
    line = shlex.join(["undamped", "train", file, *settings])
    console().print(f"\nNext: [bold]{escape(line)}[/]", soft_wrap=True)


def sparkline(values: np.ndarray, width: int = WIDTH) -> str:
    """Draw a series in one line of blocks; a blank is a stretch without values."""
    import numpy as np

    finite = np.where(np.isfinite(values), values, np.nan)
    parts = np.array_split(finite.astype(np.float64), min(width, len(values)))
    means = np.array([np.nan if np.isnan(p).all() else float(np.nanmean(p)) for p in parts])
    if np.isnan(means).all():
        return " " * len(means)
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    scale = (high - low) or 1.0
    return "".join(
        " " if np.isnan(mean) else _BLOCKS[round((mean - low) / scale * (len(_BLOCKS) - 1))]
        for mean in means
    )
