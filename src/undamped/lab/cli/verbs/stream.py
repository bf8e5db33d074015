"""`undamped stream RUN`: samples in, answers out, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from undamped.lab.export.live import LiveModel, SampleLines, TextLines

LONGEST = 1 << 20
"""Bytes of the longest line that is read, so that memory stays bounded whatever comes."""
_PIECE = 1 << 16  # bytes that are read at once, if so many are there


def stream(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    every: Annotated[
        int, typer.Option(min=1, help="Answer after every so many samples, and after the last.")
    ] = 1,
    time: Annotated[
        str | None,
        typer.Option(
            help="For models trained with timestamps: the name of their column, if it is not "
            "that of the training data."
        ),
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Report a bad line and go on with the next.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Go on from the state in this file if it exists, and write the state into it at "
            "the end."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per answer.")] = False,
) -> None:
    """Read samples from standard input and answer line by line, in constant memory.

    A sample is a line of numbers with commas between them, or of JSON; the first line may name
    the channels. Character models read plain text and answer which character comes next.

    Example: `sensor | undamped stream runs/recordings-unicornn-1 --json`
    """
    import sys

    from undamped._base.errors import DataError
    from undamped._base.files import refuse_folder
    from undamped.lab.export import subject_of
    from undamped.lab.export.live import LiveModel, SampleLines, TextLines
    from undamped.lab.training.run import Run

    refuse_folder(state)
    opened = Run.open(run)
    subject = subject_of(opened)
    live = LiveModel(subject)
    if state is not None and state.exists():
        live.load_state(state)
    reader = SampleLines(
        subject, time or opened.settings["task"].get("options", {}).get("time") or "time"
    )
    if subject.input_kind == "symbols" and subject.classes:
        reader = TextLines(subject.classes)
    if sys.stdin is None:
        raise DataError(
            "standard input: expected samples, got none: it is closed. Pipe them in, for example "
            f"undamped stream {run} < samples.csv"
        )
    try:
        _answer_lines(live, reader, sys.stdin.buffer, every, skip, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        if state is not None:
            live.save_state(state)


def _answer_lines(
    live: LiveModel,
    reader: SampleLines | TextLines,
    source: BinaryIO,
    every: int,
    skip: bool,
    as_json: bool,
) -> None:
    """Push samples in as large blocks as are there and as lie between two answers."""
    import sys

    from undamped._base.errors import DataError, ShapeError, printable

    def report(number: int, error: Exception) -> None:
        if not skip:
            raise DataError(f"line {number}: {error}") from None
        sys.stderr.write(printable(f"line {number}: {error}\n"))
        sys.stderr.flush()

    def push(rows: list[tuple[Any, float | None, int]]) -> None:
        before = live.steps
        if len(rows) > 1:
            times = None if rows[0][1] is None else [time for _, time, _ in rows]
            try:
                live.push([sample for sample, _, _ in rows], times)
                rows = []
            except (DataError, ShapeError, ValueError):
                pass  # none of them was taken: one after the other says which is wrong
        for sample, time, number in rows:
            try:
                live.push(sample, time)
            except (DataError, ShapeError) as error:
                report(number, error)
        if live.steps > before and live.steps % every == 0:
            _write(live, as_json)

    number = 0
    try:
        for lines in _blocks(source):
            rows: list[tuple[Any, float | None, int]] = []
            for line in lines:
                number += 1
                try:
                    samples = reader.read(_decoded(line))
                except DataError as error:
                    if rows:
                        push(rows)
                        rows = []
                    report(number, error)
                    continue
                for sample, time in samples:
                    rows.append((sample, time, number))
                    if (live.steps + len(rows)) % every == 0:
                        push(rows)
                        rows = []
            if rows:
                push(rows)
            sys.stdout.flush()
        if live.steps % every:
            _write(live, as_json)
    finally:
        sys.stdout.flush()


def _blocks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Return all lines that are there, as soon as there is one; of a long one, the beginning."""
    begun = b""
    while piece := source.read1(_PIECE):  # type: ignore[attr-defined]
        *lines, begun = (begun + piece).split(b"\n")
        begun = begun[: LONGEST + 1]
        if lines:
            yield [line + b"\n" for line in lines]
    if begun:
        yield [begun]


def _decoded(line: bytes) -> str:
    from undamped._base.errors import DataError, explain

    if len(line) > LONGEST:
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

    from undamped._base.errors import printable
    from undamped.lab.cli.screen import escape_controls

    answer = live.answer()
    if as_json:
        text = escape_controls(json.dumps({"step": live.steps, **answer}, ensure_ascii=False))
    else:
        text = printable(_in_words(answer))
    sys.stdout.write(f"{text}\n")


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
