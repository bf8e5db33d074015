"""Vital signs: breaths or heartbeats per minute from 32 seconds of signals."""

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
from undamped.lab.tasks.ucr import archive_set


@tasks.register("vitals")
class VitalSigns(SeriesTask):
    """Say how often a person breathes, or the heart beats, from 32 seconds of recorded signals.

    Windows have 4,000 steps, 125 a second. "systole" is 25.6 minutes of real ECG and respiration
    of one person, split by time with one whole window left out between the parts; it says
    nothing about other people. "simulated" people are split by person. TSER's files (BIDMC32RR,
    BIDMC32HR) can be read with `file`; their published parts are random windows, so that one
    person is on both sides.

    Args:
        data: "systole" or "simulated".
        rate: The target: "respiratory" or "heart" rate, per minute.
        signals: What the model sees; from the ECG alone the breath has to be guessed from how it
            swings.
        file: Name_TRAIN.ts of a TSER set, or its folder, instead of `data`.
        stride_seconds: Seconds from one window of systole to the next.
        subjects: How many people are simulated.
        windows: Windows of each of them.
        split_seed: Which people are in which part.
        seed: Where the order of training comes from.

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
            "train": {
                "batch_size": 16,
                "learning_rate": 0.003,
                "clip": 1.0,
                "epochs": 30,
                "schedule": "cosine",
            },
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
        found: SeriesSet
        if file is not None:
            if signals == "ecg":
                raise OptionError(
                    "signals: expected to be left out with a file, got 'ecg'. A file is used with "
                    "all its channels."
                )
            found = archive_set("", file)
            by = "stratified" if found.parts is None else "given"
        elif data == "systole":
            found, by = systole_windows(folder("systole"), rate, stride_seconds), "time"
        else:
            found, by = simulated_subjects(rate, subjects, windows, split_seed), "group"
        if signals == "ecg":
            found = found.select(["ecg"])
        super().__init__(
            found,
            kind="regression",
            split=by,
            fractions=DEFAULT_FRACTIONS,
            gap=STEPS if by == "time" else 0,
            split_seed=split_seed,
            seed=seed,
        )
