"""Vital signs: respiratory or heart rate from 32 seconds of signals."""

from __future__ import annotations

from typing import ClassVar, Literal

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.vital_signs import (
    STEPS,
    Rate,
    simulated_subjects,
    systole_windows,
)
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, By
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import COSINE
from undamped.lab.tasks.ucr import archive_set


@tasks.register("vitals")
class VitalSigns(SeriesTask):
    """Estimate the respiratory or the heart rate from 32 seconds of recorded signals.

    Windows have 4,000 steps, 125 per second. "systole" is 25.6 minutes of real ECG and respiration
    of one person, split by time with one window left out between the splits; results do not
    generalise to other people. "simulated" people are split by person. TSER's files (BIDMC32RR,
    BIDMC32HR) can be read with `file`; their published splits are random windows, so that a person
    can be in both.

    Args:
        data: "systole" or "simulated".
        rate: The target: "respiratory" or "heart" rate, per minute.
        signals: The channels that models receive; with the ECG alone, respiration is visible only
            in its modulation.
        file: Name_TRAIN.ts of a TSER set, or its folder, instead of `data`.
        stride_seconds: Seconds from one window of systole to the next.
        subjects: How many people are simulated.
        windows: Windows of each of them.
        split_seed: Seed of the simulation and of the split.
        seed: Seed of the order of the batches.

    Example:
        >>> build("vitals", data="simulated", rate="heart")

    Reference:
        Task after T. K. Rusch, S. Mishra. UnICORNN. ICML, 2021, section 4; signals of
        N. Legrand, M. Allen. Systole. JOSS, 2022, and D. Makowski et al. NeuroKit2, 2021.
    """

    # Plain choices, not tuned.
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64, "readout": "last"},
            "train": {**COSINE, "batch_size": 16, "learning_rate": 0.003, "epochs": 30},
        },
        "unicornn": {"model": {"num_layers": 3, "dt": 0.046, "alpha": 10.0}},
    }

    def __init__(
        self,
        data: Literal["systole", "simulated"] = "systole",
        *,
        rate: Rate = "respiratory",
        signals: Literal["ecg", "ecg+respiration"] = "ecg+respiration",
        file: str | None = None,
        stride_seconds: PositiveFloat = 4.0,
        subjects: PositiveInt = 40,
        windows: PositiveInt = 6,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        by: By
        series_set: SeriesSet
        if file is not None:
            if signals == "ecg":
                raise OptionError(
                    "signals=ecg is not possible with a file, whose channels are all used. Leave "
                    "it out."
                )
            series_set = archive_set("", file)
            by = "stratified" if series_set.parts is None else "given"
        elif data == "systole":
            series_set, by = systole_windows(folder("systole"), rate, stride_seconds), "time"
        else:
            series_set, by = simulated_subjects(rate, subjects, windows, split_seed), "group"
        if signals == "ecg":
            series_set = series_set.select(["ecg"])
        super().__init__(
            series_set,
            kind="regression",
            split=by,
            fractions=DEFAULT_FRACTIONS,
            gap=STEPS if by == "time" else 0,
            split_seed=split_seed,
            seed=seed,
        )
