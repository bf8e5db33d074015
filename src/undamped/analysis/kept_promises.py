"""Promises of a model beside what was measured, as an instrument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, positive
from undamped.analysis.promises import Measurement, measure
from undamped.nn import Recurrent
from undamped.nn.bases.block import Block


@instruments.register("promises")
@dataclass(frozen=True)
class KeptPromises(Result):
    """What a model claims about signals and gradients, and what was found.

    `measurements` holds a claim, its measured value and the limit that the value must not exceed.
    """

    measurements: tuple[Measurement, ...]
    name: str = ""

    question = "Does the model keep what its paper promises?"
    place = 50
    of_motion = True
    of_answers = True
    function = "measure"
    columns = ("promise", "measured", "value", "limit", "")

    @classmethod
    def measure(cls, probe: Probe) -> KeptPromises:
        """Measure the cell of the first layer, or a model of continuous depth as a whole."""
        network = probe.network
        subject: Any = network
        if isinstance(network, Recurrent):
            cell = network.cell(0)
            subject = cell.cell if isinstance(cell, Block) else cell
        found = measure(subject, seed=probe.seed) if getattr(subject, "promises", ()) else ()
        if not found:
            raise InapplicableError("it promises nothing that can be measured")
        return KeptPromises(tuple(found), probe.name)

    @property
    def sentence(self) -> str:
        """How many are kept."""
        kept = sum(found.kept for found in self.measurements)
        return f"{kept} of {len(self.measurements)} promises kept."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Claim against measurement."""
        return [
            (
                found.promise.claim,
                found.meaning,
                f"{found.value:.3g}",
                f"{found.limit:.3g}",
                "✓ kept" if found.kept else "✗ broken",
            )
            for found in self.measurements
        ]

    @property
    def layout(self) -> Layout:
        """Each measurement as a share of its limit, in decades."""
        last = max(1, len(self.measurements) - 1)
        return Layout(
            "Promise against measurement",
            "number of the promise",
            "measured value as a share of its limit",
            "A promise below the line is kept.",
            log_y=True,
            background=(reference([0, last], [1, 1], "limit"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each promise; a page has them as a table and needs no picture."""
        if not style.alone:
            return []
        shares = [found.value / found.limit if found.limit else 0.0 for found in self.measurements]
        claims = [found.promise.claim for found in self.measurements]
        return [
            style.points(
                range(len(shares)), positive(shares), "promises", text=claims, mode="markers+text"
            )
        ]
