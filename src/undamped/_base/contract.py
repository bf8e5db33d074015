"""What tasks and models agree on: batches and the shape of a task.

A batch has all fields that any model may need, so that training, evaluation, prediction,
instruments and export pass on the whole batch and do not depend on its contents. The shape of a
task is what is needed to build a model for it without the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import Units, check_fields, convert

NO_TARGETS = torch.empty(0)
"""The targets of a batch without known answers."""


class Batch(NamedTuple):
    """Inputs and targets, time first; optional fields are None.

    Args:
        inputs: (time, batch, features) vectors or pixels, (time, batch) symbols,
            (time, batch, channels, height, width) images; (batch, features) for single points,
            and for states at the start of a trajectory. With `distinct` inputs, their indices:
            (time, batch), or (batch,).
        targets: (batch, …) for one answer, (time, batch, …) for one at every step,
            (outputs, batch, …) for a trajectory at `target_times`.
        lengths: (batch,) true lengths of the sequences.
        times: (time, batch) timestamps of the inputs, if these are irregular: not decreasing, and
            relative to a time 0 that all sequences of the task share, so that no answer depends
            on other sequences. Entries beyond a sequence's length are arbitrary. Long times are
            in double precision: a model takes differences first.
        observed: (time, batch, features) mask of the inputs that were measured; the others are
            arbitrary, for example NaN. Channels may be measured at different times.
        target_times: (outputs, batch) times of the answers, relative to the same time 0 and in any
            order; for trajectories relative to the time of the initial state, and not decreasing.
        target_mask: Mask of the known targets, in the shape of `targets` or without its last
            dimension; the others are arbitrary.
        distinct: (distinct, …) the inputs that occur, each once, if many are repeated, so that
            `each_input` processes each of them once; `expanded` returns the plain form.
        weights: (batch,) weight of each sequence in the loss; None if all are equal.
    """

    inputs: Tensor
    targets: Tensor = NO_TARGETS
    lengths: Tensor | None = None
    times: Tensor | None = None
    observed: Tensor | None = None
    target_times: Tensor | None = None
    target_mask: Tensor | None = None
    distinct: Tensor | None = None
    weights: Tensor | None = None

    def each_input(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to every input, and to those that occur several times once.

        Args:
            change: Takes inputs (count, …) and returns (count, …), each from its input alone.

        Returns:
            (time, batch, …), or (batch, …) for single points with indices.
        """
        if self.distinct is None:
            return change(self.inputs.flatten(0, 1)).unflatten(0, self.inputs.shape[:2])
        used, index = self.used()
        changed = change(used)
        # The gradient of plain indexing would accumulate element by element.
        return changed.index_select(0, index.flatten()).unflatten(0, index.shape)

    def used(self) -> tuple[Tensor, Tensor]:
        """Return the distinct inputs that occur in the batch, and the index of every input."""
        if self.distinct is None:
            raise ShapeError(
                "batch.distinct is None: the inputs are not indices. Use batch.inputs, or "
                "batch.each_input(function)."
            )
        used, index = torch.unique(self.inputs, return_inverse=True)
        return self.distinct if len(used) == len(self.distinct) else self.distinct[used], index

    def expanded(self) -> Batch:
        """Return the batch with inputs instead of indices into the distinct inputs."""
        if self.distinct is None:
            return self
        return self._replace(inputs=self.distinct[self.inputs], distinct=None)

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return a batch with a function applied to every tensor."""
        return Batch(*[None if part is None else change(part) for part in self])  # type: ignore

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        return self.map(lambda part: part.to(device))

    def cast(self, dtype: torch.dtype) -> Batch:
        """Return a batch whose inputs have the type of a model's weights.

        Times never lose precision, because differences of large times would be noise. Targets do
        not change their type, which depends on the loss.
        """

        def values(part: Tensor | None) -> Any:
            return part.to(dtype) if part is not None and part.is_floating_point() else part

        def timestamps(part: Tensor | None) -> Tensor | None:
            return None if part is None else part.to(torch.promote_types(part.dtype, dtype))

        return self._replace(
            inputs=values(self.inputs),
            times=timestamps(self.times),
            target_times=timestamps(self.target_times),
            distinct=values(self.distinct),
        )

    def part(self, samples: slice | Tensor, *, inputs_axis: int, targets_axis: int) -> Batch:
        """Return some of the sequences.

        Args:
            samples: Which ones, as a slice or by their indices.
            inputs_axis: The batch dimension of the inputs: 1 for sequences, 0 for points.
            targets_axis: The batch dimension of the targets.
        """
        of_inputs = (slice(None),) * inputs_axis + (samples,)
        of_targets = (slice(None),) * targets_axis + (samples,)
        second = (slice(None), samples)
        return Batch(
            self.inputs[of_inputs],
            self.targets[of_targets] if self.targets.numel() else self.targets,
            None if self.lengths is None else self.lengths[samples],
            None if self.times is None else self.times[second],
            None if self.observed is None else self.observed[of_inputs],
            None if self.target_times is None else self.target_times[second],
            None if self.target_mask is None else self.target_mask[of_targets],
            self.distinct,
            None if self.weights is None else self.weights[samples],
        )

    def during(self, steps: slice, *, every: bool) -> Batch:
        """Return the same sequences at some of their steps.

        Args:
            steps: Which ones.
            every: Whether there is a target at every step, so that targets are sliced, too.
        """
        return self._replace(
            inputs=self.inputs[steps],
            times=None if self.times is None else self.times[steps],
            observed=None if self.observed is None else self.observed[steps],
            targets=self.targets[steps] if every else self.targets,
            target_mask=self.target_mask[steps]
            if every and self.target_mask is not None
            else self.target_mask,
        )


InputKind = Literal["vectors", "symbols", "pixels", "pictures", "states"]
TaskReadout = Literal["last", "every"]
Answer = Literal["class", "number", "density", "trajectory"]
Use = Literal["times", "observed", "pictures", "target_times"]
"""What a batch may contain beyond inputs and lengths, which a model must support.

"times" and "observed" are the fields of those names; "pictures" are inputs with channels, height
and width; "target_times" asks for answers at given times.
"""
Coordinate = Literal["position", "velocity", "momentum", "angle", "cosine", "sine", "other"]
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
        covariates: For each covariate with known future values, the indices of two inputs: its
            values, and its values `horizon` steps later.

    Example:
        >>> Forecast(12, (0,), ((280.0, 120.0),), ((280.0, 120.0),)).season
        12
    """

    season: int
    channels: tuple[int, ...]
    input_units: tuple[Unit, ...]
    answer_units: tuple[Unit, ...]
    quantiles: tuple[float, ...] = ()
    covariates: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Forecast:
        """Return the forecast from plain values, those of `asdict`."""
        return cls(
            stored["season"],
            tuple(stored["channels" if "channels" in stored else "places"]),  # the former name
            tuple((zero, scale) for zero, scale in stored["input_units"]),
            tuple((zero, scale) for zero, scale in stored["answer_units"]),
            tuple(stored["quantiles"]),
            tuple((now, later) for now, later in stored.get("covariates", ())),
        )


@dataclass(frozen=True)
class StateSpace:
    """The coordinates of a state, in the order of its features, and the inputs behind them.

    A batch of states contains the coordinates, followed by the inputs u. A model reads here which
    of them are positions and which are momenta.

    Args:
        names: Names of the coordinates, for figures and tables.
        kinds: The kind of each coordinate; an angle is a position with period 2π, which may be
            given by its cosine and its sine instead.
        inputs: Names of the inputs u, such as forces, which are not predicted.
        rods: Pairs of bodies at a fixed distance, if positions are those of bodies in the plane,
            one body after the other: bodies are numbered from 1, and 0 is the origin.

    Example:
        >>> pendulum = StateSpace(("θ", "p"), ("angle", "momentum"))
        >>> pendulum.indices("angle", "position")
        (0,)
    """

    names: tuple[str, ...]
    kinds: tuple[Coordinate, ...]
    inputs: tuple[str, ...] = ()
    rods: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.kinds) or not self.names:
            raise OptionError(
                f"StateSpace needs one kind for each coordinate, got {len(self.names)} names and "
                f"{len(self.kinds)} kinds."
            )

    @classmethod
    def canonical(cls, dof: int, inputs: int = 0) -> StateSpace:
        """Return the space of positions q, momenta p and inputs u.

        Args:
            dof: Number of positions, and of momenta.
            inputs: Number of inputs.
        """
        return cls._numbered("qp", "momentum", dof, inputs)

    @classmethod
    def moving(cls, dof: int, inputs: int = 0) -> StateSpace:
        """Return the space of positions q, velocities v and inputs u.

        Args:
            dof: Number of positions, and of velocities.
            inputs: Number of inputs.
        """
        return cls._numbered("qv", "velocity", dof, inputs)

    @classmethod
    def _numbered(cls, letters: str, second: Coordinate, dof: int, inputs: int) -> StateSpace:
        names = tuple(f"{letter}{k + 1}" for letter in letters for k in range(dof))
        kinds: list[Coordinate] = ["position" if k < dof else second for k in range(2 * dof)]
        return cls(names, tuple(kinds), tuple(f"u{k + 1}" for k in range(inputs)))

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.names)

    def indices(self, *kinds: Coordinate) -> tuple[int, ...]:
        """Return the indices of the coordinates of some kinds."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind in kinds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json; rods are left out where there are none."""
        plain = asdict(self)
        if not self.rods:
            del plain["rods"]
        return plain

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> StateSpace:
        """Return the space from what `to_dict` returned."""
        values = {name: tuple(value) for name, value in stored.items()}
        values["rods"] = tuple((a, b) for a, b in values.get("rods", ()))
        return cls(**values)


@dataclass(frozen=True)
class TaskShape:
    """The shape of a task.

    Args:
        input_size: Features per step or point; for symbols, how many symbols there are.
        output_size: Features of an answer; 0 where the answer is a density.
        input_kind: What the inputs are.
        readout: Whether there is one answer, or one at every step.
        sequential: Whether inputs are sequences; otherwise they are single points.
        answer: The kind of an answer.
        needs: The fields of a batch that a model must use.
        picture_shape: Channels, height and width of an image.
        state_space: The coordinates of a state.
        segments: The number of steps of each segment of a sequence, if it is the same for all
            sequences: (2, 2, 2) are three pairs, (9,) is one row. Empty if lengths differ.
        clock: Typical gap and duration, if a batch has times.
        horizon: The number of steps that a forecast of regular steps covers; an answer contains as
            many values in a row.
        same_channels: Whether the features of an answer are those of an input at other times, so
            that a model of the inputs needs no readout.
        class_weights: The weight of each class in the loss; empty if all are equal.
        forecast: Channels, units and season of a forecast of regular steps.
        weighted: Whether sequences have weights, those of the batch.
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
        """The same task with one value instead of its quantiles."""
        if self.forecast is None or not self.forecast.quantiles:
            return self
        size = self.output_size // len(self.forecast.quantiles)
        return replace(self, output_size=size, forecast=replace(self.forecast, quantiles=()))

    @property
    def length(self) -> int | None:
        """The number of steps, if it is the same for all sequences."""
        return sum(self.segments) or None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json, without optional fields that have their default."""
        required = ("input_size", "output_size", "input_kind", "readout", "sequential", "answer")
        plain: dict[str, Any] = {}
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if field.name not in required and value == field.default:
                continue
            if isinstance(value, frozenset | tuple):
                value = sorted(value) if isinstance(value, frozenset) else list(value)
            elif is_dataclass(value):
                value = value.to_dict() if isinstance(value, StateSpace) else asdict(value)  # type: ignore[arg-type]
            plain[field.name] = value
        return plain

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> TaskShape:
        """Return the shape from what `to_dict` of this version or an earlier one returned."""
        values = dict(stored)
        # Before answers had a kind, a density was a task without outputs.
        values.setdefault("answer", "class" if values["output_size"] else "density")
        values["needs"] = frozenset(values.get("needs", ()))
        for name, read in (
            *((name, tuple) for name in ("picture_shape", "segments", "class_weights")),
            ("state_space", StateSpace.from_dict),
            ("clock", lambda plain: Clock(**plain)),
            ("forecast", Forecast.from_dict),
        ):
            if values.get(name) is not None:
                values[name] = read(values[name])
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
