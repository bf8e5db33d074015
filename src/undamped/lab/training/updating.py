"""Updates: a trained model learns from further recordings, as a new version of its run.

A model with a ridge readout learns exactly: its normal equations are stored in the run, and the
readout after an update is that of one fit to all recordings, with the features and the penalty of
the training. A network continues from its weights on old and new recordings, and an update that
makes it worse on the old validation split is refused.
"""

from __future__ import annotations

import errno
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped._base.errors import DataError, OptionError, RunError, shortened
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.baselines.closed_form import ClosedFormModel, NaiveBaseline
from undamped.lab.baselines.statistics import RidgeStatistics
from undamped.lab.data.recordings.drift import drift, profile, refuse_other_units
from undamped.lab.data.recordings.grid import in_units
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.files import read_tensors, write_tensors
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split
from undamped.lab.training.closed_form import SplitBatches
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.run import Run
from undamped.lab.training.update import check_loss
from undamped.models.task_model import TaskModel

SPLITS: tuple[Split, ...] = ("train", "valid")
STATISTICS = "statistics.safetensors"
_BATCH = 64
_EPOCHS = 5  # of a network over the new recordings
_AGREES = 1e-3  # relative difference of the stored readout and that of the statistics


class Updated(NamedTuple):
    """The result of an update.

    Args:
        run: The new version of the run.
        series: The number of new recordings.
        drift: What differs from the training recordings; see `drift`.
        scores: The score on the old validation split before and after, for a network.
    """

    run: Run
    series: int
    drift: dict[str, Any]
    scores: tuple[float, float] | None = None


def statistics_of(run: Run) -> RidgeStatistics:
    """Return the normal equations of a bank, stored or of its training recordings.

    Args:
        run: The run.
    """
    model = run.model()
    if not isinstance(model, OscillatorBank):
        raise OptionError(
            f"{type(model).__name__} has no normal equations to store. Name a file to learn from."
        )
    return _statistics(run, model)[0]


def store_statistics(run: Run) -> int:
    """Store the normal equations of a run, so that updates need no training recordings.

    Args:
        run: The run, whose training recordings must exist.

    Returns:
        The number of samples.
    """
    statistics = statistics_of(run)
    _write_statistics(run.path, statistics)
    run.update(profile=_profile(run))
    return statistics.samples


def update(run: Run, series_set: SeriesSet, *, lose: float = 0.02) -> Updated:
    """Return a new run whose model was also trained on further recordings.

    Args:
        run: The finished run; it is not changed.
        series_set: The new recordings with their targets.
        lose: For networks: how much worse the score on the old validation split may become, as a
            fraction of the score.
    """
    preparation = _check(run)
    series_set = preparation.arrange(series_set)
    before, after = _profile(run), profile(series_set)
    digest = hashlib.sha256(b"".join(sorted(map(_digest, series_set.series)))).hexdigest()
    updates = run.settings.get("updates", [])
    _refuse_data(series_set, preparation, before, after)
    if any(entry["digest"] == digest for entry in updates):
        raise DataError(
            f"{series_set.source} has been used for an update before. Name new recordings."
        )
    model, scores, statistics = run.model(), None, None
    if isinstance(model, OscillatorBank):
        statistics, scale = _statistics(run, model)
        _add(statistics, model, _batches(series_set, preparation))
        _set_readout(model, statistics, scale)
    elif isinstance(model, NaiveBaseline):
        model.refit(list(_batches(series_set, preparation)))
    elif isinstance(model, ClosedFormModel) or not model.differentiable:
        raise OptionError(
            f"{type(model).__name__} cannot learn on. Train again with old and new recordings, or "
            "use bank or a network."
        )
    else:
        size = run.train_options().batch_size
        scores = _train_on(run, model, list(_batches(series_set, preparation, size)), lose)
    entry = {"source": series_set.source, "series": len(series_set), "digest": digest}
    merged = {
        **before,
        "end": max(filter(None, (before.get("end"), after.get("end"))), default=None),
    }
    changes = {"updates": [*updates, entry], "updated_from": str(run.path), "profile": merged}
    created = _new_version(run, model, statistics, changes)
    return Updated(created, len(series_set), drift(before, after), scores)


# Checks


def _check(run: Run) -> Preparation:
    preparation = run.preparation()
    if preparation is None or preparation.kind not in ("classification", "regression"):
        raise OptionError(
            "An update needs a run on recordings with one class or number each. For others, train "
            "again with all data."
        )
    if run.settings["status"] != "finished":
        raise RunError(f"{run.path} is not finished. Continue it first: undamped resume {run.path}")
    if preparation.window is not None:
        raise OptionError(
            f"The run was trained on windows of {preparation.window} steps, which an update does "
            "not support. Train again with old and new recordings."
        )
    return preparation


def _refuse_data(
    series_set: SeriesSet, preparation: Preparation, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Refuse new classes, other units, and dates before the end of the training recordings."""
    if series_set.targets is None or series_set.stepwise:
        raise DataError(f"{series_set.source} needs one target per recording to learn from.")
    classes = preparation.classes
    new = [name for name in after.get("classes", ()) if name and name not in (classes or ())]
    if classes is not None and new:
        raise DataError(
            f"{series_set.source} has the class '{shortened(new[0])}', which the model does not "
            "have. Train again with all recordings to add a class."
        )
    refuse_other_units(before, after, series_set.source)
    dates, end = series_set.columns.get("dates"), before.get("end")
    if dates and end is not None and series_set.times is not None:
        first = min(float(times[0]) for times in series_set.times)
        if first <= end:
            raise DataError(
                f"{series_set.source} begins {in_units(end - first)} before the end of the "
                "recordings that the model was trained on. Remove the older rows."
            )


def _digest(series: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(series).tobytes()).digest()


def _profile(run: Run) -> dict[str, Any]:
    """Return the profile of the training recordings."""
    stored = run.settings.get("profile")
    return profile(_task(run).recordings) if stored is None else stored


def _task(run: Run) -> SeriesTask:
    """Return the task of a run, whose recordings must be those that it was trained on."""
    try:
        task = run.task()
    except DataError as error:
        raise RunError(
            f"The first update needs the training recordings, but: {error} Restore them; "
            f"'undamped update {run.path}' without a file then makes them unnecessary."
        ) from None
    if not isinstance(task, SeriesTask):
        raise OptionError("An update needs a run on recordings.")
    return task


def _batches(
    series_set: SeriesSet, preparation: Preparation, size: int = _BATCH
) -> Iterator[Batch]:
    """Yield labelled recordings in batches, without those that have no target."""
    targets = torch.from_numpy(preparation.encode(np.asarray(series_set.targets)))
    for start in range(0, len(series_set), size):
        rows = range(start, min(start + size, len(series_set)))
        times = series_set.times
        prepared = [
            preparation.prepare(series_set.series[i], None if times is None else times[i])
            for i in rows
        ]
        yield batch_of(prepared)._replace(targets=targets[start : rows.stop])


# Ridge readouts


def _statistics(run: Run, model: OscillatorBank) -> tuple[RidgeStatistics, float]:
    """Return the normal equations of a run, and the factor from its regression to its readout.

    They are those that are stored, or are computed from the training recordings.
    """
    path, size = run.path / STATISTICS, len(model.centre)
    if path.exists():
        tensors, metadata = read_tensors(path)
        factor, samples = tensors.get("factor"), metadata.get("samples", "")
        if factor is None or factor.shape[1:] != (1 + size + model.shape.output_size,):
            raise RunError(f"{path} does not belong to the model. Restore it from a copy.")
        statistics = RidgeStatistics(factor, size, int(samples))
    else:
        task, options = _task(run), run.train_options()
        statistics = RidgeStatistics.empty(size, model.shape.output_size)
        splits: tuple[Split, ...] = ("train",) if task.validates_on_training else SPLITS
        for split in splits:
            _add(statistics, model, SplitBatches(task, split, options))
    weight, _ = statistics.solve(float(model.penalty))
    readout = model.readout.weight.detach().double()
    scale = float((readout * weight).sum() / weight.square().sum().clamp_min(1e-300))
    if float((readout - scale * weight).norm()) > _AGREES * float(readout.norm()):
        raise RunError(
            f"The readout of {run.path} does not follow from its recordings: they have changed "
            "since the training, or the run is from an earlier version. Train again."
        )
    return statistics, scale


def _add(statistics: RidgeStatistics, model: OscillatorBank, batches: Iterable[Batch]) -> None:
    for batch in batches:
        statistics.add(*model.ridge_rows(batch))


def _set_readout(model: OscillatorBank, statistics: RidgeStatistics, scale: float) -> None:
    weight, bias = statistics.solve(float(model.penalty))
    with torch.no_grad():
        model.readout.weight.copy_(weight * scale)
        model.readout.bias.copy_(bias * scale)


def _write_statistics(folder: Path, statistics: RidgeStatistics) -> None:
    metadata = {"samples": str(statistics.samples)}
    write_tensors(folder / STATISTICS, {"factor": statistics.factor}, metadata)


# Networks


def _train_on(run: Run, model: TaskModel, batches: list[Batch], lose: float) -> tuple[float, float]:
    """Train a network on new batches, each beside one of the training; return its scores."""
    task, options = _task(run), run.train_options()
    before = evaluate(model, task, "valid", options.batch_size).metric
    old = list(SplitBatches(task, "train", options))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    model.train()
    for step in range(_EPOCHS * len(batches)):
        optimizer.zero_grad()
        for batch in (batches[step % len(batches)], old[step % len(old)]):
            batch = batch.cast(model.dtype)
            loss = task.loss(model.run(batch)[0], batch)
            check_loss(loss, step, model, batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip or 1.0)
        optimizer.step()
    model.eval()
    after = evaluate(model, task, "valid", options.batch_size).metric
    worse = before - after if task.higher_is_better else after - before
    if not worse <= lose * abs(before):  # also where a score is not a number
        raise DataError(
            f"The update was discarded: on the old validation split, {task.metric} would go from "
            f"{before:.4g} to {after:.4g}. Train again with all recordings, or allow it with "
            "--lose."
        )
    return before, after


# Versions


def _new_version(
    run: Run, model: TaskModel, statistics: RidgeStatistics | None, changes: dict[str, Any]
) -> Run:
    """Write a new run folder beside the old one, which appears when it is complete."""
    parent, (name, _, _) = run.path.parent, run.path.name.rpartition("-")
    with tempfile.TemporaryDirectory(dir=parent, prefix=".update-") as temporary:
        version = Run(Path(temporary) / "run")
        version.path.mkdir()
        (version.path / "checkpoints").mkdir()
        settings = run.settings
        for part in ("result", "metrics"):  # they are scores of the old weights
            settings.pop(part, None)
        version.update(**{**settings, **changes})
        version.save_model(model)
        if statistics is not None:
            _write_statistics(version.path, statistics)
        number = 1
        while True:
            path = parent / f"{name or run.path.name}-{number}"
            if not path.exists():
                try:
                    version.path.rename(path)
                    return Run(path)
                except FileExistsError:
                    pass
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
            number += 1
