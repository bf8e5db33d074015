"""The progress bar of a training: loss, metric, gradient norm, time left."""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning as L

from undamped.training.module import TrainingModule


class ProgressBar(L.Callback):
    """Shows how a training goes, on standard error.

    On a terminal it is a bar; in a file or a pipe it is a line per validation.

    Args:
        title: What is being trained.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: Any = None
        self._drawn = 0.0
        self._rows = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draw the empty bar."""
        if not trainer.is_global_zero:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(file=sys.stderr)
        self._console = console
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._bar.start()
            self._line = self._bar.add_task(self.title, total=1.0, numbers="")

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move the bar, at most ten times a second."""
        assert isinstance(pl_module, TrainingModule)
        if not trainer.is_global_zero:
            return
        now = time.perf_counter()
        if self._bar is not None and now - self._drawn > 0.1:
            self._drawn = now
            self._bar.update(
                self._line, completed=min(1.0, pl_module.spent), numbers=self._numbers(pl_module)
            )
        elif self._bar is None:
            self._print_new_row(pl_module)

    def _print_new_row(self, module: TrainingModule) -> None:
        if len(module.progress.rows) > self._rows:
            self._rows = len(module.progress.rows)
            step = module.progress.rows[-1]["step"]
            line = f"{self.title}: step {step}, {self._numbers(module)}"
            self._console.print(line, style=None, soft_wrap=True, markup=False)

    def _numbers(self, module: TrainingModule) -> str:
        latest, name = module.latest, module.task.metric.replace("_", " ")
        text = f"loss {latest['loss']:.4g}  {name} {latest['metric']:.4g}"
        if module.progress.rows:
            text += f"  valid {module.progress.rows[-1]['valid_' + module.task.metric]:.4g}"
        return text + f"  |grad| {latest['gradient_norm']:.2g}"

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the bar away."""
        assert isinstance(pl_module, TrainingModule)
        if trainer.is_global_zero and self._bar is None:
            self._print_new_row(pl_module)
        self._close()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Take the bar away, so that the message has the screen to itself."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
