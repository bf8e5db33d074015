"""`undamped data check FILE`: a summary of a file of recordings, before training."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from undamped._base.errors import OptionError
from undamped._base.options import check_against, options_in, unknown_name
from undamped.lab.cli.commands.catalogue import Check
from undamped.lab.cli.figures import check_figure, draw_recordings
from undamped.lab.cli.progress import stages
from undamped.lab.cli.screen import console, print_json, print_lines, print_warnings
from undamped.lab.data.recordings.findings import Findings, look_at
from undamped.lab.data.recordings.options import ReadingOptions
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training.doubtful_labels import LabelCheck, check_labels

WIDTH, EXAMPLES, MOST_LABELS = 60, 3, 20
_BLOCKS = "▁▂▃▄▅▆▇█"
HORIZON = "horizon"


def check(options: Check) -> None:
    """Read a file and print what is in it."""
    words, figure = options.words, options.figure
    check_figure(figure)
    file, reading, forecast = _read_words(words)
    series_set = read_recordings(file, **reading, forecast=forecast)
    findings = look_at(series_set)
    label_check = None
    if options.labels:
        with stages("labels") as stage:
            stage("training a bank on all series")
            label_check = check_labels(series_set)
    if figure is not None:
        draw_recordings(figure, series_set, findings)
    if options.as_json:
        content = {"file": file, "columns": series_set.columns, **asdict(findings)}
        if label_check is not None:
            content["labels"] = label_check.to_dict()
        print_json(content)
        return
    _print(file, series_set, findings, figure)
    if label_check is not None:
        _print_labels(label_check)
    _print_next(words, series_set)


def _print_labels(label_check: LabelCheck) -> None:
    console().print("\n[bold]Doubtful labels[/]")
    print_lines(*(f"  {sentence}" for sentence in label_check.sentences))
    for series in label_check.doubtful[:MOST_LABELS]:
        print_lines(
            f"  {series.id}: label {series.label} (probability {series.chance:.2g}), prediction "
            f"{series.instead} ({series.instead_chance:.2g})"
        )
    if len(label_check.doubtful) > MOST_LABELS:
        print_lines(f"  … and {len(label_check.doubtful) - MOST_LABELS:,} more; --json has all.")


def _read_words(words: list[str]) -> tuple[str, dict[str, Any], bool]:
    """Return the file, the options for reading it, and whether it is for a forecast."""
    files = [word for word in words if "=" not in word]
    if len(files) != 1:
        raise OptionError(
            f"'undamped data check' needs one file or folder, got {len(files)}. Settings have the "
            "form target=COLUMN."
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


def _print(file: str, series_set: SeriesSet, findings: Findings, figure: Path | None) -> None:
    screen = console()
    print_lines(f"{file}: {findings.summary}", *(f"  {fact}" for fact in findings.facts))
    print_warnings(findings.warnings)
    if findings.classes:
        screen.print("")
        most = max(findings.classes.values())
        for name, count in list(findings.classes.items())[:20]:
            bar = "█" * max(1, round(32 * count / most))
            screen.print(f"  {escape(f'{name:>12.12}')} {count:>8,} [blue]{bar}[/]")
    if figure is not None:
        print_lines(f"Figure: {figure}")
        return
    screen.print("")
    for index in range(min(EXAMPLES, len(series_set))):
        series = series_set.series[index]
        for column, channel in enumerate(series_set.channels[:EXAMPLES]):
            name = series_set.ids[index] if column == 0 else ""
            line = sparkline(series[:, column])
            screen.print(f"  {name:>12.12} {channel:<10.10} {line}", markup=False, no_wrap=True)


def _print_next(words: list[str], series_set: SeriesSet) -> None:
    file, *settings = sorted(words, key=lambda word: "=" in word)
    if series_set.targets is None and not any(word.startswith(HORIZON) for word in settings):
        settings.append("horizon=10")
    line = shlex.join(["undamped", "train", file, *settings])
    console().print(f"\nNext: [bold]{escape(line)}[/]", soft_wrap=True)


def sparkline(values: np.ndarray, width: int = WIDTH) -> str:
    """Return a series as one line of blocks; a blank is a segment without values."""
    finite = np.where(np.isfinite(values), values, np.nan)
    segments = np.array_split(finite.astype(np.float64), min(width, len(values)))
    means = np.array([np.nan if np.isnan(s).all() else float(np.nanmean(s)) for s in segments])
    if np.isnan(means).all():
        return " " * len(means)
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    scale = (high - low) or 1.0
    return "".join(
        " " if np.isnan(mean) else _BLOCKS[round((mean - low) / scale * (len(_BLOCKS) - 1))]
        for mean in means
    )
