"""`undamped bench` and `undamped reproduce`: registered benchmarks and experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markdown import Markdown

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name
from undamped._base.registry import benchmarks, experiments
from undamped.lab.catalogue import settings_of
from undamped.lab.cli.commands.catalogue import Bench, Benchmark, Reproduce
from undamped.lab.cli.progress import progress_bar
from undamped.lab.cli.screen import console, print_json, print_lines
from undamped.lab.cli.settings import read_options
from undamped.lab.files import write_text


def bench(options: Bench) -> None:
    """Run a benchmark, print its table and write it to a Markdown file."""
    name = options.name
    run = benchmarks[name]
    supported = settings_of(run)
    if options.device is not None and "device" not in supported:
        raise OptionError(f"The benchmark '{name}' runs on the CPU only. Remove --device.")
    common = {key: getattr(options, key) for key in ("rounds", "quick", "device")}
    settings = {k: v for k, v in common.items() if k in supported and v is not None}
    settings |= read_options(name, run, options.words or [])
    check_table(options.table, name)
    result = _run(f"bench {name}", run, settings, options.out, prefix=f"{name}-")
    if options.table is not None:
        fill_table(options.table, name, result.markdown())
    if options.as_json:
        print_json(result.to_dict())
    else:
        console().print(result.summary())


def benchmark(options: Benchmark) -> None:
    """Run the memory benchmark as far as the time allows, and print its tables."""
    from undamped.lab.benchmarks.memory_tasks import run

    if options.name != "memory":
        raise unknown_name("benchmark of models", options.name, ["memory"])
    settings = read_options("benchmark memory", run, options.words or [])
    settings |= {"minutes": options.minutes, "out": options.out}
    result = _run("benchmark memory", run, settings, None)
    if options.as_json:
        print_json(result.to_dict())
    else:
        console().print(result.summary())
        print_lines(f"Scores, report.md, paper.md and the heat map: {options.out}")


def reproduce(options: Reproduce) -> None:
    """Run an experiment and print its tables."""
    from undamped.lab.report.animation import animate

    name, run, out = options.name, experiments[options.name], options.out
    settings = read_options(name, run, options.words or [])
    result = _run(f"reproduce {name}", run, settings, out)
    if out is not None:
        for title, paths in getattr(result, "animations", dict)().items():
            animate(paths, out / f"{title}.gif")
    if options.as_json:
        print_json(result.to_dict())
    else:
        console().print(Markdown(result.markdown()))


def _run(title: str, run: Any, settings: dict[str, Any], out: Path | None, prefix: str = "") -> Any:
    """Run a registered function with a progress bar, and write the figures of its result."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with progress_bar(title) as progress:
        result = run(**settings, progress=progress)
    if out is not None:
        for name, figure in result.figures().items():
            figure.savefig(out / f"{prefix}{name}.png", dpi=110)
    return result


def markers(name: str) -> tuple[str, str]:
    """Return the lines before and after the table of a benchmark in a Markdown file."""
    return f"<!-- bench {name} -->", "<!-- end -->"


def check_table(path: Path | None, name: str) -> None:
    """Raise an error for a file without markers before anything is measured."""
    if path is None:
        return
    start, end = markers(name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if start not in text or end not in text.partition(start)[2]:
        raise OptionError(
            f"--table needs a Markdown file with the lines {start} and {end}, between which the "
            f"table is written; {path} does not have them."
        )


def fill_table(path: Path, name: str, table: str) -> None:
    """Write a table between its markers."""
    start, end = markers(name)
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    write_text(path, f"{before}{start}\n{table.strip()}\n{end}{after}")
