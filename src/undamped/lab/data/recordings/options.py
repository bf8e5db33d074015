"""Options of recordings: how they are read, split and prepared.

Tasks accept them as a group, `**options: Unpack[SeriesOptions]`; the command line, its help and the
checks of options use the same declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from undamped._base.options import Default, NonNegativeInt, PositiveInt, check_against, options_in
from undamped.lab.data.recordings.formats.table.columns import Decimal, Duplicates, Layout
from undamped.lab.data.recordings.preparation import Kind, Missing
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, By

SYNTAX = ("decimal", "na", "dayfirst", "duplicates")
"""Options about the syntax of tables; a run reads later files with the same ones."""


class ReadingOptions(TypedDict, total=False):
    """The roles of the columns of a table, and the syntax of its values."""

    target: Annotated[
        str | None,
        Default(
            None, "Column of labels or numbers to learn; with a horizon, the channel to predict."
        ),
    ]
    id: Annotated[str | None, Default(None, "Column of the series that a row belongs to.")]
    time: Annotated[
        str | None,
        Default(None, "Column of timestamps, numbers or dates; a column of dates is detected."),
    ]
    group: Annotated[
        str | None,
        Default(None, "Column of groups, such as subjects; every group stays in one split."),
    ]
    channels: Annotated[
        Sequence[str] | None, Default(None, "Columns that models receive; all others by default.")
    ]
    layout: Annotated[
        Layout, Default("auto", '"long" for a row per time step, "wide" for a row per series.')
    ]
    decimal: Annotated[
        Decimal | None, Default(None, "The decimal mark of a CSV file; detected by default.")
    ]
    na: Annotated[
        Sequence[str],
        Default((), "Further words for a missing value, besides NA, n/a, null, - and the like."),
    ]
    dayfirst: Annotated[
        bool | None,
        Default(None, "Whether 1/2/2024 is the first of February; detected by default."),
    ]
    duplicates: Annotated[
        Duplicates,
        Default(
            "refuse",
            "What to do with rows of a series with the same timestamp: raise an error, or use "
            'their "first" or their "mean".',
        ),
    ]


class PreparationOptions(TypedDict, total=False):
    """How values are prepared, and the seed of the split."""

    missing: Annotated[
        Missing | Literal["auto"],
        Default(
            "auto",
            'What to do with missing values: "interpolate" linearly, or "mask": models receive '
            'which are missing; "auto" masks them where timestamps are irregular.',
        ),
    ]
    standardise: Annotated[
        bool, Default(True, "Whether channels are scaled to mean 0 and standard deviation 1.")
    ]
    split_seed: Annotated[NonNegativeInt, Default(0, "Seed of the split.")]


class SeriesOptions(PreparationOptions, total=False):
    """The question about a set of series, and how it is split, cut and prepared."""

    kind: Annotated[
        Kind | Literal["auto"],
        Default(
            "auto",
            'The kind of task; "auto" infers it from the targets: text and few integers are '
            "classes, other numbers are regressed, one per step where there is one per step; with "
            "a horizon, it is a forecast.",
        ),
    ]
    timestamps: Annotated[
        bool | None,
        Default(
            None, "Whether models receive timestamps; by default if the time between steps varies."
        ),
    ]
    split: Annotated[
        By | Literal["auto"],
        Default("auto", '"stratified", "group", "time" or "given"; "auto" chooses by the data.'),
    ]
    fractions: Annotated[
        Sequence[float], Default(DEFAULT_FRACTIONS, "Fractions of training, validation and test.")
    ]
    held_out: Annotated[
        str | None, Default(None, "The group, such as a subject, whose series are the test split.")
    ]
    weights: Annotated[
        Literal["equal", "balanced"],
        Default(
            "equal",
            'Class weights of loss and score: "balanced" gives every class of the training split '
            "the same total weight.",
        ),
    ]
    sensitivity: Annotated[
        float | None,
        Default(
            None,
            "The sensitivity that one class should reach, such as 0.95; the threshold of its "
            "probability is chosen on the validation split.",
        ),
    ]
    positive: Annotated[
        str | None,
        Default(None, "With sensitivity, the positive class; the rarer of two by default."),
    ]
    gap: Annotated[
        NonNegativeInt,
        Default(0, "For a split by time, how many steps are left out between two splits."),
    ]
    window: Annotated[
        PositiveInt | None, Default(None, "Steps of the windows that series are cut into.")
    ]
    stride: Annotated[PositiveInt | None, Default(None, "Steps from one window to the next.")]
    horizon: Annotated[
        PositiveInt | None, Default(None, "Forecast this many values, all of them at once.")
    ]
    season: Annotated[
        PositiveInt | None,
        Default(
            None,
            "With a horizon, the steps of a season; detected in the training split by default, 1 "
            "for none.",
        ),
    ]
    quantiles: Annotated[
        Sequence[float] | None,
        Default(
            None,
            "With a horizon, quantiles to learn by the pinball loss, such as 0.1,0.9; the median "
            "is always added. Without them networks learn the mean. Prediction bands are "
            "calibrated on validation data either way.",
        ),
    ]
    forecast: Annotated[
        Sequence[str] | None,
        Default(
            None, "The channels to predict; by default all that are neither known nor observed."
        ),
    ]
    known: Annotated[
        Sequence[str] | None,
        Default(
            None,
            "With a horizon, covariates whose future values are known, such as holiday,price. A "
            "file to be continued has them for horizon further rows.",
        ),
    ]
    observed: Annotated[
        Sequence[str] | None,
        Default(
            None,
            "With a horizon, covariates that are known up to the forecast only, such as weather.",
        ),
    ]


class RecordingOptions(ReadingOptions, SeriesOptions, total=False):
    """All options of a file of recordings."""


def complete_reading(caller: str, reading: ReadingOptions) -> dict[str, Any]:
    """Return checked options of reading, with the defaults of those that are not given.

    Args:
        caller: The name of the function, for messages.
        reading: The options.
    """
    declared = options_in(ReadingOptions)
    checked = check_against(caller, declared, reading)
    return {name: checked.get(name, option.default) for name, option in declared.items()}
