"""`undamped stream RUN`: samples in, answers out, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from undamped.export.live import LiveModel
    from undamped.export.sample_lines import SampleLines, TextLines

LONGEST = 1 << 20
"""Bytes of the longest line that is read, so that memory stays bounded whatever comes."""


def stream(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    every: Annotated[
        int, typer.Option(min=1, help="Answer after every so many samples, and after the last.")
    ] = 1,
    time: Annotated[
        str | None,
        typer.Option(
            help="For models trained with time stamps: the name of their column, if it is not "
            "that of the training data."
        ),
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Report a bad line and go on with the next.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per answer.")] = False,
) -> None:
    """Read samples from standard input and answer line by line, in constant memory.

    A sample is a line of numbers with commas between them, or of JSON; the first line may name
    the channels. Character models read plain text and answer which character comes next.

    Example: `sensor | undamped stream runs/recordings-unicornn-1 --json`
    """
    import os
    import sys

    from undamped.export import subject_of
    from undamped.export.live import LiveModel
    from undamped.export.sample_lines import SampleLines, TextLines
    from undamped.training.run import Run

    opened = Run.open(run)
    subject = subject_of(opened)
    live = LiveModel(subject)
    reader = SampleLines(
        subject, time or opened.settings["task"].get("options", {}).get("time") or "time"
    )
    if subject.input_kind == "symbols" and subject.classes:
        reader = TextLines(subject.classes)
    try:
        _answer_lines(live, reader, sys.stdin.buffer, every, skip, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Nobody reads on. What is left in the buffer goes nowhere, without a word.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def _answer_lines(
    live: LiveModel,
    reader: SampleLines | TextLines,
    source: BinaryIO,
    every: int,
    skip: bool,
    as_json: bool,
) -> None:
    import sys

    from undamped.errors import DataError, ShapeError, printable

    for number, line in enumerate(_lines(source), start=1):
        try:
            for sample, time in reader.read(_decoded(line)):
                live.push(sample, time)
                if live.steps % every == 0:
                    _write(live, as_json)
        except (DataError, ShapeError) as error:
            if not skip:
                raise DataError(f"line {number}: {error}") from None
            sys.stderr.write(printable(f"line {number}: {error}\n"))
            sys.stderr.flush()
    if live.steps % every:
        _write(live, as_json)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Return lines as they come; of one that is too long, the beginning."""
    while line := source.readline(LONGEST):
        rest = line
        while len(rest) == LONGEST and not rest.endswith(b"\n"):
            rest = source.readline(LONGEST)
        yield line


def _decoded(line: bytes) -> str:
    from undamped.errors import DataError, explain

    if len(line) == LONGEST and not line.endswith(b"\n"):
        got = "a longer one"
    else:
        try:
            return line.decode()
        except UnicodeDecodeError:
            got = "one that is not UTF-8"
    expected = f"a line of UTF-8 text of less than {LONGEST:,} bytes"
    raise DataError(explain("sample", expected=expected, got=got, remedy="Split or convert it."))


def _write(live: LiveModel, as_json: bool) -> None:
    import json
    import sys

    from undamped.cli.screen import escape_controls
    from undamped.errors import printable

    answer = live.answer()
    if as_json:
        text = escape_controls(json.dumps({"step": live.steps, **answer}, ensure_ascii=False))
    else:
        text = printable(_in_words(answer))
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _in_words(answer: dict[str, Any]) -> str:
    """Write an answer for a person: the class and its probability, or numbers."""
    if "probabilities" in answer:
        chances = answer["probabilities"]
        best = answer.get("label", answer.get("answer"))
        likely = max(chances.values() if isinstance(chances, dict) else chances)
        shown = repr(best) if isinstance(best, str) and not best.isprintable() else best
        return f"{shown} {likely:.3f}"
    if "forecast" in answer:
        return "  ".join(f"{name} {_numbers(row)}" for name, row in answer["forecast"].items())
    return _numbers(answer["value"] if "value" in answer else answer["answer"])


def _numbers(values: float | list[float]) -> str:
    return " ".join(f"{v:.7g}" for v in (values if isinstance(values, list) else [values]))
