"""`undamped zoo`: the trained models that come with the library."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.markdown import Markdown
from rich.table import Table as RichTable

from undamped._base.options import unknown_name
from undamped.lab.cli.commands.runs import Zoo
from undamped.lab.cli.progress import progress_bar
from undamped.lab.cli.screen import console, metric_text, print_json, print_lines
from undamped.lab.report.table import Table
from undamped.lab.zoo import zoo_index

HEADER = ("name", "task", "model", "score", "chance", "paper", "parameters", "CPU s", "bytes")


def zoo(options: Zoo) -> None:
    """List or describe entries, or measure them again."""
    words, index = options.words or [], zoo_index()
    measured = words[:1] == ["check"]
    names = words[1:] if measured else words
    for name in names:
        if name not in index:
            raise unknown_name("entry of the zoo", name, [*index, "check"])
    if measured:
        _check(names or list(index), options)
    elif options.as_json:
        print_json({name: index[name] for name in names or index})
    elif names:
        console().print(Markdown("\n\n".join(card(name, index[name]) for name in names)))
    else:
        console().print(_printed(listing(index)))
        print_lines("A name is TASK-MODEL. Use it as a run folder: undamped diagnose NAME")


def _check(names: list[str], options: Zoo) -> None:
    """Measure entries again; exit with code 1 if a score differs."""
    from undamped.lab.training.zoo_runs import differences

    problems: dict[str, list[str]] = {}
    with progress_bar("zoo check") as progress:
        for rank, name in enumerate(names):
            progress(name, rank / len(names))
            problems[name] = differences(name, options.tolerance)
    if options.as_json:
        print_json(problems)
    else:
        for name, sentences in problems.items():
            print_lines(*(sentences or [f"{name}: all scores agree"]))
    count = sum(map(bool, problems.values()))
    if count:
        sys.stderr.write(f"{count} of {len(names)} entries have other scores than recorded.\n")
        raise typer.Exit(1)


def listing(index: dict[str, dict[str, Any]]) -> Table:
    """Return the table of all entries; the score is that of 'test', or of the last test split."""
    rows = []
    for name, entry in index.items():
        ((metric, chance),) = entry["chance"].items()
        splits = [split for split, scores in entry["scores"].items() if metric in scores]
        split = "test" if "test" in splits else splits[-1]
        unit = "" if metric.endswith("accuracy") else f"{metric} "
        suffix = "" if split == "test" else f" ({split})"
        effort = f"{entry['parameters']:,}", f"{entry['cpu_seconds']:.0f}", f"{entry['bytes']:,}"
        score = f"{unit}{metric_text(entry['scores'][split][metric], metric)}{suffix}"
        scores = score, metric_text(chance, metric)
        rows.append((name, entry["task"], entry["model"], *scores, entry["paper"] or "–", *effort))
    return Table(HEADER, rows, text_columns=4)


def _printed(table: Table) -> Any:
    """Return the table for a terminal, without columns that a name or the lack of values says."""
    columns = [k for k, cells in enumerate(zip(*table.rows, strict=True)) if set(cells) != {"–"}]
    grid = RichTable(box=None, header_style="dim", collapse_padding=True, pad_edge=False)
    columns = [k for k in columns if table.header[k] not in ("task", "model")]
    for k in columns:
        right = k >= table.text_columns
        grid.add_column(table.header[k], justify="right" if right else "left", no_wrap=k == 0)
    for row in table.rows:
        grid.add_row(*(row[k] for k in columns))
    return grid


def card(name: str, entry: dict[str, Any]) -> str:
    """Return the description of an entry as Markdown."""
    ((metric, chance),) = entry["chance"].items()
    scores = [
        f"- {split}: {key.replace('_', ' ')} {metric_text(value, key)}"
        + (f" (chance {metric_text(chance, metric)})" if key == metric else "")
        for split, metrics in entry["scores"].items()
        for key, value in metrics.items()
    ]
    lines = [f"## {name}", "", entry["about"], "", *scores]
    lines += [f"- paper: {entry['paper']}"] if entry["paper"] else []
    lines += [
        f"- {entry['parameters']:,} parameters, {entry['cpu_seconds']:.0f} CPU seconds of "
        f"training, {entry['bytes']:,} bytes",
        f"- SHA-256 of the weights: `{entry['sha256']['model.safetensors']}`",
        "",
        f"```\n{entry['command']}\n```",
    ]
    return "\n".join(lines)
