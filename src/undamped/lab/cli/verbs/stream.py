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
from undamped.lab.training.early_answers import stopping_rule
from undamped.lab.training.run import Run
from undamped.lab.training.stopping import StoppingRule

LONGEST = 1 << 20
"""Bytes of the longest line that is read, so that memory is bounded for any input."""
_CHUNK = 1 << 16  # bytes of one read


def stream(options: Stream) -> None:
    """Read samples until the end of standard input, and answer."""
    state = options.state
    refuse_folder(state)
    run = Run.open(options.run)
    subject = subject_of(run)
    live = LiveModel(subject)  # refuses what cannot stream before a rule is computed
    if options.decide:
        live = LiveModel(subject, _rule(run))
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


def _rule(run: Run) -> StoppingRule:
    """Return the stopping rule of a run, and print it with its scores as a message."""
    result = stopping_rule(run, _message)
    rule, scores = result.rule, result.scores
    twice = " twice in a row" if rule.repeats > 1 else ""
    _message(
        f"The decision needs a probability of {rule.threshold:.3g}{twice}, and at least "
        f"{rule.checkpoints[rule.first]:,} of {rule.checkpoints[-1]:,} samples."
    )
    _message(
        f"On {scores.series:,} validation series: accuracy {scores.accuracy:.1%} "
        f"after {scores.fraction:.0%} of a series, harmonic mean with earliness "
        f"{scores.harmonic_mean:.3f}; accuracy {scores.full_accuracy:.1%} after all of it."
    )
    columns = (
        f"{fraction:.0%} {accuracy:.1%} ({confidence:.1%})"
        for fraction, accuracy, confidence in result.calibration()
    )
    _message(f"Accuracy (mean probability) by fraction of the length: {', '.join(columns)}.")
    return rule


def _message(text: str) -> None:
    sys.stderr.write(printable(f"{text}\n"))
    sys.stderr.flush()


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
                    if self.live.decisions is not None and not line.strip():
                        self.end_series(samples)
                        continue
                    try:
                        values = self.reader.read(_decoded(line))
                    except DataError as error:
                        self.push(samples)
                        self.report(number, error)
                        continue
                    for sample, time in values:
                        samples.append(_Sample(sample, time, number))
                        if self.ends_block(self.live.steps + len(samples)):
                            self.push(samples)
                self.push(samples)
                count += len(lines)
                sys.stdout.flush()
            self.end_series([], reset=False)
        finally:
            sys.stdout.flush()

    def ends_block(self, steps: int) -> bool:
        """Return whether an answer or a decision may be due after a number of samples."""
        decisions = self.live.decisions
        return steps % self.options.every == 0 or (
            decisions is not None and decisions.remaining(steps - 1) == 1
        )

    def end_series(self, samples: list[_Sample], *, reset: bool = True) -> None:
        """Push the last block of a series, and answer unless that was done."""
        self.push(samples)
        if self.live.steps % self.options.every:
            self.write()
        if reset:
            self.live.reset()

    def push(self, samples: list[_Sample]) -> None:
        """Push a block, answer if an answer is due, and clear the block."""
        before, decided = self.live.steps, self.live.decided
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
        due = self.live.steps % self.options.every == 0 or self.live.decided > decided
        if self.live.steps > before and due:
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
    if "decision" in answer:
        decision = answer["decision"]
        if decision is None:
            return "too early"
        return f"{_label(decision['label'])} {decision['probability']:.3f} {decision['sample']}"
    if "probabilities" in answer:
        probabilities = answer["probabilities"]
        best = answer.get("label", answer.get("answer"))
        highest = max(probabilities.values() if isinstance(probabilities, dict) else probabilities)
        return f"{_label(best)} {highest:.3f}"
    if "forecast" in answer:
        return "  ".join(f"{name} {_numbers(row)}" for name, row in answer["forecast"].items())
    return _numbers(answer["value"] if "value" in answer else answer["answer"])


def _label(label: Any) -> Any:
    return repr(label) if isinstance(label, str) and not label.isprintable() else label


def _numbers(values: float | list[float]) -> str:
    return " ".join(f"{v:.7g}" for v in (values if isinstance(values, list) else [values]))
