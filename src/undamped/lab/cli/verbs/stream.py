"""`undamped stream RUN`: samples from standard input, answers line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import typer

from undamped._base.errors import DataError, ShapeError, printable
from undamped.lab.cli.commands.runs import Stream
from undamped.lab.cli.screen import escape_controls
from undamped.lab.export import subject_of
from undamped.lab.export.live import LiveModel, SampleLines, TextLines
from undamped.lab.files import refuse_folder
from undamped.lab.training.run import Run

LONGEST = 1 << 20
"""Bytes of the longest line that is read, so that memory is bounded for any input."""
_CHUNK = 1 << 16  # bytes of one read


def stream(options: Stream) -> None:
    """Read samples until the end of standard input, and answer."""
    state = options.state
    refuse_folder(state)
    run = Run.open(options.run)
    subject = subject_of(run)
    live = LiveModel(subject)
    if state is not None and state.exists():
        live.load_state(state)
    reader = SampleLines(
        subject, options.time or run.settings["task"].get("options", {}).get("time") or "time"
    )
    if subject.input_kind == "symbols" and subject.classes:
        reader = TextLines(subject.classes)
    if sys.stdin is None:
        raise DataError(
            "Standard input is closed. Pipe samples into the command: undamped stream "
            f"{run.path} < samples.csv"
        )
    try:
        _Lines(live, reader, options).answer(sys.stdin.buffer)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        if state is not None:
            live.save_state(state)


class _Sample(NamedTuple):
    """A sample, its time or None, and the number of its line."""

    values: Any
    time: float | None
    line: int


class _Lines(NamedTuple):
    """A model that reads lines."""

    live: LiveModel
    reader: SampleLines | TextLines
    options: Stream

    def answer(self, source: BinaryIO) -> None:
        """Push samples in blocks as large as are available and end where an answer is due."""
        count = 0
        try:
            for lines in _blocks(source):
                samples: list[_Sample] = []
                for number, line in enumerate(lines, start=count + 1):
                    try:
                        values = self.reader.read(_decoded(line))
                    except DataError as error:
                        self.push(samples)
                        self.report(number, error)
                        continue
                    for sample, time in values:
                        samples.append(_Sample(sample, time, number))
                        if (self.live.steps + len(samples)) % self.options.every == 0:
                            self.push(samples)
                self.push(samples)
                count += len(lines)
                sys.stdout.flush()
            if self.live.steps % self.options.every:
                self.write()
        finally:
            sys.stdout.flush()

    def push(self, samples: list[_Sample]) -> None:
        """Push a block, answer if an answer is due, and clear the block."""
        before = self.live.steps
        remaining = samples[:]
        samples.clear()
        if len(remaining) > 1:
            times = None if remaining[0].time is None else [s.time for s in remaining]
            try:
                self.live.push([sample.values for sample in remaining], times)
                remaining = []
            except (DataError, ShapeError, ValueError):
                pass  # none was accepted; pushing them one by one shows which is wrong
        for sample in remaining:
            try:
                self.live.push(sample.values, sample.time)
            except (DataError, ShapeError) as error:
                self.report(sample.line, error)
        if self.live.steps > before and self.live.steps % self.options.every == 0:
            self.write()

    def report(self, number: int, error: Exception) -> None:
        """Raise an error with the number of its line, or print it and continue."""
        if not self.options.skip:
            raise DataError(f"line {number}: {error}") from None
        sys.stderr.write(printable(f"line {number}: {error}\n"))
        sys.stderr.flush()

    def write(self) -> None:
        """Print the answer to the samples so far."""
        answer = self.live.answer()
        if self.options.as_json:
            content = {"step": self.live.steps, **answer}
            text = escape_controls(json.dumps(content, ensure_ascii=False))
        else:
            text = printable(_in_words(answer))
        sys.stdout.write(f"{text}\n")


def _blocks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield all lines that are available; a line that is too long is cut."""
    rest = b""
    while chunk := source.read1(_CHUNK):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[: LONGEST + 1]
        if lines:
            yield [line + b"\n" for line in lines]
    if rest:
        yield [rest]


def _decoded(line: bytes) -> str:
    if len(line) > LONGEST:
        raise DataError(f"the line is longer than {LONGEST:,} bytes")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise DataError("the line is not UTF-8 text") from None


def _in_words(answer: dict[str, Any]) -> str:
    """Return an answer as text: the class and its probability, or numbers."""
    if "probabilities" in answer:
        probabilities = answer["probabilities"]
        best = answer.get("label", answer.get("answer"))
        highest = max(probabilities.values() if isinstance(probabilities, dict) else probabilities)
        label = repr(best) if isinstance(best, str) and not best.isprintable() else best
        return f"{label} {highest:.3f}"
    if "forecast" in answer:
        return "  ".join(f"{name} {_numbers(row)}" for name, row in answer["forecast"].items())
    return _numbers(answer["value"] if "value" in answer else answer["answer"])


def _numbers(values: float | list[float]) -> str:
    return " ".join(f"{v:.7g}" for v in (values if isinstance(values, list) else [values]))
