"""The class that has to be found with a wanted sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_chance import class_counts


def wanted_alarm(
    asked: Mapping[str, Any],
    series_set: SeriesSet,
    preparation: Preparation,
    parts: Mapping[str, np.ndarray],
) -> tuple[str, float] | None:
    """Return the class and the share of it that has to be found; None where nobody asked.

    Args:
        asked: The options `sensitivity` and `positive`.
        series_set: The recordings.
        preparation: What is known of their labels.
        parts: Which series are in which part.
    """
    wanted, positive = asked["sensitivity"], asked["positive"]
    if wanted is None:
        if positive is not None:
            raise _error("positive", "sensitivity beside it", "none", "Give both, or neither.")
        return None
    classes = preparation.classes
    if preparation.kind != "classification" or classes is None:
        got = f"answers of the kind '{preparation.kind}'"
        raise _error("sensitivity", "one class for a series", got, "Leave it out.")
    if not 0 < wanted <= 1:
        raise _error("sensitivity", "a share above 0 and up to 1", wanted, "For example 0.95.")
    counts = class_counts(series_set, preparation, parts["train"])
    if positive is None:
        if len(classes) != 2:
            named = ", ".join(classes[:5])
            raise _error("positive", f"one of the classes {named}", "none", "Say which to find.")
        positive = classes[int(np.argmin(counts))]
    if positive not in classes:
        named = ", ".join(classes[:5])
        raise _error("positive", f"one of the classes {named}", positive, "Spell it as the data.")
    held_out = class_counts(series_set, preparation, parts["valid"])
    if not held_out[classes.index(positive)]:
        raise DataError(
            explain(
                "sensitivity",
                expected=f"series of class '{positive}' in the validation part",
                got="none",
                remedy="Give more of them, or a larger validation part (fractions=).",
            )
        )
    return positive, float(wanted)


def _error(name: str, expected: str, got: Any, remedy: str) -> OptionError:
    return OptionError(explain(name, expected=expected, got=got, remedy=remedy))
