"""Scans over time: a plain loop as reference, and compiled kernels.

Written by `python -m undamped.lab.catalogue`; do not edit.
"""

from undamped.kernels.indrnn.layer import independent_layer as independent_layer
from undamped.kernels.linear.oscillator import linear_oscillator_scan as linear_oscillator_scan
from undamped.kernels.linear.scan import linear_scan as linear_scan
from undamped.kernels.reference import reference_independent_scan as reference_independent_scan
from undamped.kernels.reference import reference_oscillator_scan as reference_oscillator_scan
from undamped.kernels.shared.limits import KernelLimits as KernelLimits
from undamped.kernels.shared.limits import kernel_limits as kernel_limits
from undamped.kernels.unicornn.backward import InversionWarning as InversionWarning
from undamped.kernels.unicornn.function import oscillator_stack as oscillator_stack
from undamped.kernels.unicornn.function import reference_stack as reference_stack
from undamped.kernels.unicornn.scan import oscillator_scan as oscillator_scan
from undamped.kernels.unicornn.stack import Gradient as Gradient
from undamped.kernels.unicornn.stack import Layer as Layer
from undamped.kernels.unicornn.stream import OscillatorStream as OscillatorStream
from undamped.kernels.unicornn.stream import PreparedStack as PreparedStack
