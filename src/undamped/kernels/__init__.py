"""Scans over time: a plain loop as reference, and compiled kernels.

`oscillator_scan` is a layer of UnICORNN, `independent_layer` one of IndRNN. `oscillator_stack` runs
a whole UnICORNN network chunk by chunk in time; `coupled_scan` (in `coupled`) serves cells with a
recurrent product; `linear_scan` and `linear_oscillator_scan` those whose recurrence is linear.
Kernels are imported on first access, Numba when one first runs.
"""

from undamped._base.lazy import lazy_names

_NAMES = {
    "Gradient": "undamped.kernels.unicornn.stack",
    "InversionWarning": "undamped.kernels.unicornn.backward",
    "Layer": "undamped.kernels.unicornn.stack",
    "OscillatorStream": "undamped.kernels.unicornn.stream",
    "PreparedStack": "undamped.kernels.unicornn.stream",
    "KernelLimits": "undamped.kernels.shared.limits",
    "independent_layer": "undamped.kernels.indrnn.layer",
    "kernel_limits": "undamped.kernels.shared.limits",
    "linear_oscillator_scan": "undamped.kernels.linear.oscillator",
    "linear_scan": "undamped.kernels.linear.scan",
    "oscillator_scan": "undamped.kernels.unicornn.scan",
    "oscillator_stack": "undamped.kernels.unicornn.function",
    "reference_independent_scan": "undamped.kernels.reference",
    "reference_oscillator_scan": "undamped.kernels.reference",
    "reference_stack": "undamped.kernels.unicornn.function",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
