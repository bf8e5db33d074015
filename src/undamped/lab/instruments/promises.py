"""The promises of a model next to their measurements, for the page of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import positive, reference
from undamped.analysis.promises import Measurement, measure
from undamped.nn import Recurrent
from undamped.nn.bases.block import Block


@instruments.register("promises")
@dataclass(frozen=True)
class PromiseMeasurements(Result):
    """The promises of a model, each with its measurement.

    `measurements` holds promises, their measured values and the limits of these values.
    """

    measurements: tuple[Measurement, ...]
    name: str = ""

    question = "Does the model have the properties that its paper promises?"
    page_order = 50
    of_motion = True
    of_answers = True
    function = "measure"
    columns = ("promise", "measured", "value", "limit", "")

    @classmethod
    def measure(cls, probe: Probe) -> PromiseMeasurements:
        """Measure the cell of the first layer, or a model of continuous depth as a whole."""
        network = probe.network
        subject: Any = network
        if isinstance(network, Recurrent):
            cell = network.cell(0)
            subject = cell.cell if isinstance(cell, Block) else cell
        measurements = measure(subject, seed=probe.seed) if getattr(subject, "promises", ()) else ()
        if not measurements:
            raise InapplicableError("it has no promises that can be measured")
        return PromiseMeasurements(tuple(measurements), probe.name)

    @property
    def sentence(self) -> str:
        holding = sum(measurement.holds for measurement in self.measurements)
        return f"{holding} of {len(self.measurements)} promises hold."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                measurement.promise.claim,
                measurement.meaning,
                f"{measurement.value:.3g}",
                f"{measurement.limit:.3g}",
                "✓ holds" if measurement.holds else "✗ broken",
            )
            for measurement in self.measurements
        ]

    @property
    def layout(self) -> Layout:
        """Each value relative to its limit, on a logarithmic axis."""
        last = max(1, len(self.measurements) - 1)
        return Layout(
            "Promises and measurements",
            "index of the promise",
            "measured value relative to its limit",
            "A promise below the line holds.",
            log_y=True,
            background=(reference([0, last], [1, 1], "limit"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each promise; a page of several models only has the table."""
        if not style.single:
            return []
        ratios = [m.value / m.limit if m.limit else 0.0 for m in self.measurements]
        claims = [m.promise.claim for m in self.measurements]
        return [
            style.points(
                range(len(ratios)), positive(ratios), "promises", text=claims, mode="markers+text"
            )
        ]
