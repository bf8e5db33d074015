"""What a model has to know about values to come, beyond how many there are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

Unit = tuple[float, float]
"""Where zero lies and how large one is, in the units of a recording."""


@dataclass(frozen=True)
class Forecast:
    """Which channels are predicted, in which units, and how they come again.

    Args:
        season: After how many steps a series is much like itself; 1 where no season is known.
        places: The predicted channels, by their numbers among the inputs.
        input_units: Of each predicted channel as it goes in.
        answer_units: Of each predicted channel as it is answered.
        quantiles: The quantiles an answer holds for every value, rising; empty where an answer is
            one value.

    Example:
        >>> Forecast(12, (0,), ((280.0, 120.0),), ((280.0, 120.0),)).season
        12
    """

    season: int
    places: tuple[int, ...]
    input_units: tuple[Unit, ...]
    answer_units: tuple[Unit, ...]
    quantiles: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Forecast:
        """Read what `to_dict` wrote."""
        return cls(
            stored["season"],
            tuple(stored["places"]),
            tuple((zero, one) for zero, one in stored["input_units"]),
            tuple((zero, one) for zero, one in stored["answer_units"]),
            tuple(stored["quantiles"]),
        )
