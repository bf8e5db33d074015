"""What can be said about recordings, declared once: how they are read, split and prepared.

Tasks take these as a group, `**options: Unpack[SeriesOptions]`; the command line, its help and the
checks read them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped.lab.data.recordings.formats.table.columns import Decimal, Duplicates, Layout
from undamped.lab.data.recordings.preparation import Kind, Missing
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, By


class ReadingOptions(TypedDict, total=False):
    """Which column of a table is what, and how its values are written."""

    target: Annotated[
        str | None,
        Default(
            None, "Column of labels or numbers to learn; with a horizon, the channel to predict."
        ),
    ]
    id: Annotated[str | None, Default(None, "Column that says to which series a row belongs.")]
    time: Annotated[
        str | None,
        Default(None, "Column of time stamps, numbers or dates; a column of dates is found."),
    ]
    group: Annotated[
        str | None,
        Default(None, "Column of whom a series belongs to; no group is on both sides of a split."),
    ]
    channels: Annotated[
        Sequence[str] | None, Default(None, "Columns a model may see; all others by default.")
    ]
    layout: Annotated[
        Layout, Default("auto", '"long" for a row per time step, "wide" for a row per series.')
    ]
    decimal: Annotated[
        Decimal | None,
        Default(None, "The decimal mark of a CSV file; found in its first rows if not given."),
    ]
    na: Annotated[
        Sequence[str],
        Default((), "What stands for a missing value beside NA, n/a, null, - and the like."),
    ]
    dayfirst: Annotated[
        bool | None,
        Default(None, "Whether 1/2/2024 is the first of February; found in the dates if it can."),
    ]
    duplicates: Annotated[
        Duplicates,
        Default(
            "refuse",
            "What becomes of rows of a series with the same time stamp: an error, or their "
            '"first" or their "mean" is taken.',
        ),
    ]


class PreparationOptions(TypedDict, total=False):
    """How values are prepared, and which of the possible splits is taken."""

    missing: Annotated[
        Missing | Literal["auto"],
        Default(
            "auto",
            'What becomes of missing values: "interpolate" draws lines over them, "mask" tells '
            'models which they are; "auto" masks them where time stamps are irregular.',
        ),
    ]
    standardise: Annotated[
        bool, Default(True, "Whether channels are brought to mean 0 and standard deviation 1.")
    ]
    split_seed: Annotated[NonNegativeInt, Default(0, "Which of the possible splits.")]


class SeriesOptions(PreparationOptions, total=False):
    """What is asked of a set of series, and how it is split, cut and prepared."""

    kind: Annotated[
        Kind | Literal["auto"],
        Default(
            "auto",
            'What is asked; "auto" looks at the targets: text and few whole numbers are classes, '
            "other numbers are numbers, one per step where there is one per step; with a horizon, "
            "the values to come.",
        ),
    ]
    stamps: Annotated[
        bool | None,
        Default(
            None,
            "Whether models are told when each step was; by default where the time between steps "
            "varies.",
        ),
    ]
    split: Annotated[
        By | Literal["auto"],
        Default(
            "auto", '"stratified", "group", "time" or "given"; "auto" takes what suits the data.'
        ),
    ]
    fractions: Annotated[
        Sequence[float], Default(DEFAULT_FRACTIONS, "Shares of training, validation and test.")
    ]
    held_out: Annotated[
        str | None,
        Default(None, "The group, such as a subject, whose series are the test part."),
    ]
    weights: Annotated[
        Literal["equal", "balanced"],
        Default(
            "equal",
            'What answers count: "balanced" lets every class of the training part weigh alike, '
            "however rare it is, in training and in the score.",
        ),
    ]
    sensitivity: Annotated[
        float | None,
        Default(
            None,
            "The share of the series of one class that has to be found, such as 0.95: from which "
            "probability on the class is said is chosen on the validation part.",
        ),
    ]
    positive: Annotated[
        str | None,
        Default(None, "With sensitivity, the class to be found; the rarer one of two by default."),
    ]
    gap: Annotated[
        NonNegativeInt,
        Default(0, "For a split by time, how much is left out between two parts."),
    ]
    window: Annotated[
        PositiveInt | None, Default(None, "Cut the series into windows of so many steps.")
    ]
    stride: Annotated[PositiveInt | None, Default(None, "Steps from one window to the next.")]
    horizon: Annotated[
        PositiveInt | None, Default(None, "Predict so many values to come, all of them at once.")
    ]
    season: Annotated[
        PositiveInt | None,
        Default(
            None,
            "With a horizon, after how many steps a series is much like itself; found in the "
            "training part if not given, 1 for none.",
        ),
    ]
    quantiles: Annotated[
        Sequence[float] | None,
        Default(
            None,
            "With a horizon, quantiles to learn by the pinball loss, such as 0.1,0.9; the median "
            "is always among them. Without them networks learn the mean. Bands are calibrated on "
            "validation data either way.",
        ),
    ]
    forecast: Annotated[
        Sequence[str] | None, Default(None, "The channels to predict; all by default.")
    ]


class RecordingOptions(ReadingOptions, SeriesOptions, total=False):
    """All that can be said about a file of recordings."""
