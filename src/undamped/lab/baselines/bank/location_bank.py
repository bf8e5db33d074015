"""A bank of fixed oscillators that also reads when its extremes were."""

from __future__ import annotations

from typing import ClassVar

from undamped._base.registry import models
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank


@models.register("location-bank")
class LocationBank(OscillatorBank):
    """Oscillator bank with locations: `bank`, and when each oscillator was largest and smallest.

    Equation:
        φ = (features of `bank`, argmax_t y / n, argmin_t y / n)

    Symbols:
        y an oscillator, n the number of samples.

    Promise:
        Between samples no oscillation grows, and two gaps do what one gap of their length does.

    The other features of a bank do not depend on the order of events: max, min and counts are the
    same whichever of two events came first. Locations are running statistics too, so that a stream
    is processed in constant memory.

    Args:
        shape: The shape of the task.
        oscillators: Number of oscillators.
        thresholds: Number of thresholds per oscillator.
        dynamics: What is pooled; see `bank`.

    Example:
        >>> shape = undamped.models.TaskShape(3, 2)
        >>> model = undamped.lab.baselines.LocationBank(shape, oscillators=50)
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        Locations of extremes as in A. Guillaume, C. Vrain, W. Elloumi. Random dilated shapelet
        transform. ICPRAI, 2022; the bank as in A. Dempster, D. Schmidt, G. Webb. MiniRocket. KDD,
        2021.
    """

    locations: ClassVar[bool] = True
