"""Scans over time: a plain loop that says what is meant, and Numba for the CPU.

`oscillator_scan` is a layer of UnICORNN, `independent_layer` one of IndRNN. `oscillator_stack` runs
a whole UnICORNN network chunk by chunk in time; `coupled_scan` (in `coupled`) serves cells with a
recurrent product; `linear_scan` and `linear_oscillator_scan` those whose recurrence is linear.
Numba itself is imported when a kernel first runs.
"""

from undamped.kernels.indrnn.layer import independent_layer
from undamped.kernels.linear.oscillator import linear_oscillator_scan
from undamped.kernels.linear.scan import linear_scan
from undamped.kernels.reference import reference_independent_scan, reference_oscillator_scan
from undamped.kernels.unicornn.backward import InversionWarning
from undamped.kernels.unicornn.function import oscillator_stack, reference_stack
from undamped.kernels.unicornn.scan import oscillator_scan
from undamped.kernels.unicornn.stack import Gradient, Layer
from undamped.kernels.unicornn.stream import OscillatorStream, PreparedStack

__all__ = [
    "Gradient",
    "InversionWarning",
    "Layer",
    "OscillatorStream",
    "PreparedStack",
    "independent_layer",
    "linear_oscillator_scan",
    "linear_scan",
    "oscillator_scan",
    "oscillator_stack",
    "reference_independent_scan",
    "reference_oscillator_scan",
    "reference_stack",
]
