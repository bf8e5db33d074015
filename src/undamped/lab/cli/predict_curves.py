"""What a latent model believes about recordings, drawn: its mean and band through the samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from undamped.lab.data.recordings.preparation import Preparation
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.models.latent.latent_model import LatentModel
    from undamped.models.task_model import TaskModel

MOST_SERIES, MOST_CHANNELS = 4, 4
POINTS = 300


def check_curves(model: TaskModel, path: Path | None, future: bool = False) -> None:
    """Refuse a picture that cannot be drawn, before anything is answered.

    Args:
        model: The model.
        path: The picture.
        future: Whether values to come are drawn, which any model has.
    """
    from undamped._base.errors import OptionError
    from undamped.lab.cli.picture import check_picture
    from undamped.models.latent.latent_model import LatentModel

    check_picture(path)
    if path is not None and not future and not isinstance(model, LatentModel):
        raise OptionError(
            "--picture: expected a forecast, or a model that knows what lies between samples, such "
            "as latent-ode, got another. Leave --picture out."
        )


def draw_recordings(
    model: LatentModel, preparation: Preparation, series_set: SeriesSet, path: Path
) -> None:
    """Draw mean and band through the first recordings, in their own units.

    Args:
        model: The model.
        preparation: What was done to recordings before it saw them.
        series_set: The recordings.
        path: The picture file.
    """
    import numpy as np
    import torch
    from matplotlib.figure import Figure

    from undamped._base.files import write_atomically
    from undamped.lab.data.recordings.prepared import batch_of

    arranged = preparation.arrange(series_set)
    chosen = range(min(MOST_SERIES, len(arranged)))
    channels = preparation.channels[:MOST_CHANNELS]
    figure = Figure(
        figsize=(3.6 * len(chosen), 2.1 * len(channels) + 0.6), dpi=110, layout="constrained"
    )
    axes = figure.subplots(len(channels), len(chosen), squeeze=False, sharex="col", sharey="row")
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    for column, number in enumerate(chosen):
        raw = arranged.series[number]
        stamps = None if arranged.times is None else arranged.times[number]
        prepared = preparation.prepare(raw, stamps)
        batch = batch_of([prepared]).cast(model.dtype)
        steps = prepared.times if prepared.times is not None else np.arange(len(raw), dtype=float)
        end = float(steps[-1]) + preparation.horizon
        grid = torch.linspace(0.0, max(end, 1.0), POINTS, dtype=torch.float64).unsqueeze(1)
        curve = [part[:, 0].double().numpy() * std + mean for part in model.curve(batch, grid)]
        unit = preparation.typical_gap if prepared.times is not None else 1.0
        begin = float(stamps[0]) if stamps is not None and prepared.times is not None else 0.0
        across, seen = begin + unit * grid[:, 0].numpy(), begin + unit * steps
        for row, name in enumerate(channels):
            place = preparation.raw_channels.index(name)
            _draw(axes[row, column], across, [part[:, row] for part in curve], seen, raw[:, place])
            if column == 0:
                axes[row, 0].set_ylabel(name)
        axes[0, column].set_title(str(arranged.ids[number]), fontsize=9)
        axes[-1, column].set_xlabel("time" if prepared.times is not None else "step")
    axes[0, 0].legend(frameon=False, fontsize=8)
    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))


def _draw(
    axes: Any, across: np.ndarray, curve: list[np.ndarray], seen: np.ndarray, values: np.ndarray
) -> None:
    mean, low, high = curve
    axes.fill_between(across, low, high, color="#0072B2", alpha=0.18, linewidth=0, label="90 %")
    axes.plot(across, mean, color="#0072B2", linewidth=1.6, label="mean")
    axes.plot(seen, values, "o", color="black", markersize=3, label="measured")
    axes.spines[["top", "right"]].set_visible(False)
