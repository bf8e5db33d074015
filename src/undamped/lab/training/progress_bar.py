"""The progress bar of a training: loss, metric, gradient norm, remaining time."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.training.loop import Training
    from undamped.lab.training.update import Update

_NOTABLE = 0.05  # smaller fractions of waiting time are not printed


class ProgressBar:
    """Shows the progress of a training on standard error.

    On a terminal it is a bar; in a file or a pipe it is a line per validation. A training with
    `report` gets lines of text instead.

    Args:
        training: The training.
        enabled: Whether this process shows anything; a training without a title shows nothing.
    """

    def __init__(self, training: Training, enabled: bool) -> None:
        self.training = training
        self.enabled = enabled and training.title is not None
        self._bar: Any = None
        self._last_update = 0.0
        self._rows = len(training.progress.rows)

    def __enter__(self) -> ProgressBar:
        """Draw the empty bar."""
        if not self.enabled:
            return self
        from rich import progress
        from rich.console import Console

        self._console = Console(file=sys.stderr)
        if self._console.is_terminal:
            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("[bold]{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.TextColumn("{task.percentage:>3.0f}%"),
                progress.TextColumn("{task.fields[numbers]}"),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._line = self._bar.add_task(self.training.title, total=1.0, numbers="")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar, so that messages are not mixed with it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def draw(self, update: Update) -> None:
        """Update the bar, at most ten times a second; or print a line for a new validation."""
        if not (self.enabled or self.training.report):
            return
        now, spent = time.perf_counter(), min(1.0, self.training.spent)
        if self.enabled and self._bar is None:
            self._print_new_row(update)
        elif now - self._last_update > 0.1:
            self._last_update = now
            if self.training.report is not None:
                self.training.report(f"{100 * spent:.0f} %  {self._numbers(update)}")
            else:
                self._bar.update(self._line, completed=spent, numbers=self._numbers(update))

    def _print_new_row(self, update: Update) -> None:
        rows = self.training.progress.rows
        if len(rows) > self._rows:
            self._rows = len(rows)
            line = f"{self.training.title}: step {rows[-1]['step']}, {self._numbers(update)}"
            self._console.print(line, style=None, soft_wrap=True, markup=False)

    def _numbers(self, update: Update) -> str:
        progress, task = self.training.progress, self.training.task
        name, metric = task.metric.replace("_", " "), progress.training_metric(task)
        text = f"loss {update.loss:.4g}  {name} {metric:.4g}"
        if progress.rows:
            text += f"  valid {progress.rows[-1]['valid_' + task.metric]:.4g}"
        text += f"  |grad| {update.gradient_norm:.2g}"
        if throughput := progress.throughput:
            text += f"  {throughput['sequences_per_second']:,.4g} sequences/s"
            if throughput["waiting_for_data"] >= _NOTABLE:
                text += f"  {throughput['waiting_for_data']:.0%} waiting for data"
        return text
