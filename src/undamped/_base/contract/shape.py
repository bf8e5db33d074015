"""The shape of a task: what is needed to build a model for it without the data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from undamped._base.contract.state_space import StateSpace
from undamped._base.errors import OptionError
from undamped._base.options import Units, check_fields, convert

InputKind = Literal["vectors", "symbols", "pixels", "pictures", "states"]
TaskReadout = Literal["last", "every"]
Answer = Literal["class", "number", "density", "trajectory"]
Use = Literal["times", "observed", "pictures", "target_times"]
"""What a batch may contain beyond inputs and lengths, which a model must support.

"times" and "observed" are the fields of those names; "pictures" are inputs with channels, height
and width; "target_times" asks for answers at given times.
"""
Unit = tuple[float, float]
"""Offset and scale, in the units of a recording."""
LONGEST_GAP = 1e5
"""In typical gaps: a longer gap means two recordings in one file, or a wrong timestamp."""


@dataclass(frozen=True)
class Clock:
    """The typical gap between two samples and the typical duration of a sequence.

    Times may be in any unit. A model that needs a time scale (to initialise a decay or the step of
    a solver) reads it here and not from a batch, so that the result for a sequence does not depend
    on other sequences.

    Args:
        gap: The median time between two inputs.
        span: How long a sequence lasts, from time 0 to its last input or answer.

    Example:
        >>> Clock(gap=0.05, span=5.0).span
        5.0
    """

    gap: float = 1.0
    span: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.gap < float("inf") and 0 < self.span < float("inf")):
            raise OptionError(
                f"Clock needs a gap and a span > 0, got {self.gap:g} and {self.span:g}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)


@dataclass(frozen=True)
class Forecast:
    """The channels that are predicted, their units and their season.

    Args:
        season: The length of the season in steps; 1 if there is none.
        channels: The predicted channels, by their indices among the inputs.
        input_units: The unit of each predicted channel in the inputs.
        answer_units: The unit of each predicted channel in the answers.
        quantiles: The quantiles that are predicted for every value, increasing; empty where a
            prediction is one value.

    Example:
        >>> Forecast(12, (0,), ((280.0, 120.0),), ((280.0, 120.0),)).season
        12
    """

    season: int
    channels: tuple[int, ...]
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
            tuple(stored["channels" if "channels" in stored else "places"]),  # its old name
            tuple((zero, scale) for zero, scale in stored["input_units"]),
            tuple((zero, scale) for zero, scale in stored["answer_units"]),
            tuple(stored["quantiles"]),
        )


@dataclass(frozen=True)
class TaskShape:
    """The shape of a task.

    Args:
        input_size: Features per step or point; for symbols, how many symbols there are.
        output_size: Features of an answer; 0 where the answer is a density.
        input_kind: What the inputs are.
        readout: Whether there is one answer, or one at every step.
        sequential: Whether inputs are sequences; otherwise they are single points.
        answer: What an answer is.
        needs: What a model must be able to use, or its answers would mean nothing.
        picture_shape: Channels, height and width of a picture.
        state_space: What the coordinates of a state are.
        segments: How many steps each part of a sequence has, where all sequences are alike:
            (2, 2, 2) are three pairs, (9,) is one row. Empty where lengths differ.
        clock: How time runs, where a batch has times.
        horizon: How many steps to come a number is about, where it is a forecast of regular steps:
            an answer then holds so many values, one after the other.
        same_channels: Whether the features of an answer are those of an input, at other times: a
            model of the inputs then answers by itself.
        class_weights: What an answer of each class counts; empty where all count alike.
        weighted: Whether sequences count differently, by the weights of a batch.
        forecast: What is known of values to come, where an answer is a forecast of regular steps.
    """

    input_size: int
    output_size: int
    input_kind: InputKind = "vectors"
    readout: TaskReadout = "last"
    sequential: bool = True
    answer: Answer = "class"
    needs: frozenset[Use] = frozenset()
    picture_shape: tuple[int, int, int] | None = None
    state_space: StateSpace | None = None
    segments: tuple[int, ...] = ()
    clock: Clock | None = None
    horizon: int = 0
    same_channels: bool = False
    class_weights: tuple[float, ...] = ()
    forecast: Forecast | None = None
    weighted: bool = False

    @property
    def points(self) -> TaskShape:
        """The same task with one value in the place of its quantiles."""
        if self.forecast is None or not self.forecast.quantiles:
            return self
        size = self.output_size // len(self.forecast.quantiles)
        return replace(self, output_size=size, forecast=replace(self.forecast, quantiles=()))

    @property
    def length(self) -> int | None:
        """Steps of every sequence, where all have as many."""
        return sum(self.segments) or None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json; what most tasks do not have is left out."""
        plain: dict[str, Any] = {
            "input_size": self.input_size,
            "output_size": self.output_size,
            "input_kind": self.input_kind,
            "readout": self.readout,
            "sequential": self.sequential,
            "answer": self.answer,
        }
        if self.needs:
            plain["needs"] = sorted(self.needs)
        if self.picture_shape is not None:
            plain["picture_shape"] = list(self.picture_shape)
        if self.state_space is not None:
            plain["state_space"] = self.state_space.to_dict()
        if self.segments:
            plain["segments"] = list(self.segments)
        if self.clock is not None:
            plain["clock"] = self.clock.to_dict()
        if self.horizon:
            plain["horizon"] = self.horizon
        if self.same_channels:
            plain["same_channels"] = True
        if self.class_weights:
            plain["class_weights"] = list(self.class_weights)
        if self.weighted:
            plain["weighted"] = True
        if self.forecast is not None:
            plain["forecast"] = self.forecast.to_dict()
        return plain

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> TaskShape:
        """Read what `to_dict` wrote, in this version or an earlier one, and check it."""
        values = dict(stored)
        # Before answers had a kind, a density was a task without outputs.
        values.setdefault("answer", "class" if values["output_size"] else "density")
        values["needs"] = frozenset(values.get("needs", ()))
        if values.get("picture_shape") is not None:
            values["picture_shape"] = tuple(values["picture_shape"])
        if values.get("state_space") is not None:
            values["state_space"] = StateSpace.from_dict(values["state_space"])
        for name in ("segments", "class_weights"):
            values[name] = tuple(values.get(name, ()))
        if values.get("clock") is not None:
            values["clock"] = Clock(**values["clock"])
        if values.get("forecast") is not None:
            values["forecast"] = Forecast.from_dict(values["forecast"])
        shape = cls(**values)
        check_fields("shape", shape)
        convert(Units, shape.input_size, "shape.input_size")
        if shape.output_size:  # none where the answer is a density
            convert(Units, shape.output_size, "shape.output_size")
        if shape.picture_shape is not None and len(shape.picture_shape) != 3:
            raise OptionError(
                "shape.picture_shape must be channels, height and width, got "
                f"{shape.picture_shape}."
            )
        return shape
