"""`undamped runs`, `undamped open` and `undamped env`: run folders, their pages, this machine."""

from __future__ import annotations

import platform
import webbrowser
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from undamped._base.errors import RunError, printable
from undamped.lab.cli.commands.runs import Env, Open, Runs
from undamped.lab.cli.screen import console, print_json, print_lines
from undamped.lab.files import read_json

NOT_TEST_SPLITS = ("valid", "chance", "throughput")
PAGES = ("report.html", "diagnosis.html")


def runs(options: Runs) -> None:
    """Print a row for every run below a folder, the newest last."""
    if not options.folder.is_dir():
        raise RunError(f"No such folder: {options.folder}. 'undamped train' creates run folders.")
    files = sorted(options.folder.glob("**/run.json"), key=lambda file: file.stat().st_mtime)
    rows = [summary_of(file.parent) for file in files]
    if options.as_json:
        print_json(rows)
        return
    if not rows:
        print_lines(f"There are no runs in {options.folder}.")
        return
    table = Table(box=None, header_style="dim")
    for column in ("run", "task", "model", "status", "score", "time"):
        table.add_column(column, overflow="fold")
    for row in rows:
        score = "–"
        if row["score"] is not None:
            score = f"{row['score']:.4g} {row['metric']}"
        time = "–" if row["seconds"] is None else f"{row['seconds']:.0f} s"
        texts = (row["run"], row["task"], row["model"], row["status"], score, time)
        table.add_row(*(escape(printable(text)) for text in texts))
    console().print(table)


def summary_of(folder: Path) -> dict[str, Any]:
    """Return names, status and score of a run, without its data and its model.

    Args:
        folder: The run folder; a damaged run.json is a status.
    """
    row: dict[str, Any] = {"run": str(folder), "task": "–", "model": "–", "status": "damaged"}
    row |= dict.fromkeys(("metric", "split", "score", "seconds"))
    try:
        settings = read_json(folder / "run.json")
        row |= {key: str(settings[key]["name"]) for key in ("task", "model")}
        row |= {"status": str(settings["status"]), **_score(settings.get("result") or {})}
    except (RunError, ValueError, KeyError, TypeError, AttributeError):
        row["status"] = "damaged"
    return row


def _score(result: dict[str, Any]) -> dict[str, Any]:
    """Return the metric on the last test split that has it, or on the validation split."""
    valid = result.get("valid") or {}
    metric = next((name for name in valid if name != "loss"), next(iter(valid), None))
    if metric is None:
        return {}
    scores = {
        split: values[metric]
        for split, values in result.items()
        if isinstance(values, dict) and metric in values and split not in NOT_TEST_SPLITS
    } or {"validation": valid[metric]}
    split, score = list(scores.items())[-1]
    return {
        "metric": metric,
        "split": split,
        "score": None if score is None else float(score),
        "seconds": result.get("seconds"),
    }


def open_page(options: Open) -> None:
    """Open the page of a run in a browser, and print its path."""
    if not options.run.is_dir():
        raise RunError(f"No such run folder: {options.run}. 'undamped runs' lists them.")
    page = next((options.run / name for name in PAGES if (options.run / name).is_file()), None)
    if page is None:
        raise RunError(f"{options.run} has no page. Write it with 'undamped report {options.run}'.")
    page = page.resolve()
    print_lines(str(page))
    webbrowser.open(page.as_uri())


def env(options: Env) -> None:
    """Print what a bug report needs: versions, the machine, and the threads of torch."""
    from undamped.lab.training.origins import machine, versions

    facts = {**versions(), **machine(), "platform": platform.platform()}
    if options.as_json:
        print_json(facts)
    else:
        print_lines(*(f"{name}: {value}" for name, value in facts.items()))
