"""The elementwise steps of `coupled_scan`, by name and constants, without their kernels.

Tracing a network needs no more. The kernels are in the module of this package that `kernel_module`
names; it is imported, and Numba with it, when a loop is first needed.
"""

from __future__ import annotations

from undamped.kernels.coupled.contract import Activation, Step


class Tanh(Activation, module="activation", in_place=True):
    """state' = tanh(product + projected)."""


class LeakyRelu(Activation, module="activation", in_place=True):
    """state' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """


class ModRelu(Activation, module="activation", in_place=True):
    """state' = sign(s) relu(|s| + b), s = product + projected; weights: b (hidden,)."""


class ComplexModRelu(Activation, module="activation"):
    """state' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that prevents division by zero.
    """


class Euler(Step, module="euler"):
    """state' = state + step·tanh(product + projected).

    Args:
        step: The size of the step.
    """


class GatedEuler(Step, module="euler", adds_projection=False):
    """state' = state + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """


class CoupledOscillator(Step, module="euler"):
    """z' = z + step·(tanh(product + projected) − γ y − ε z), y' = y + step·z'.

    Args:
        step: The size of the step.
        stiffness: The number γ.
        damping: The number ε.
    """


class WeightedSum(Step, module="gated"):
    """state' = α tanh(product + projected) + β state; weights: α (1,), β (1,)."""


class FastGate(Step, module="gated"):
    """state' = (ζ(1 − z) + ν) ⊙ tanh(s) + z ⊙ state, z = σ̂(s + d), s = product + projected.

    Parameters: d (hidden,), ζ (1,), ν (1,).
    """


class GatedOrthogonal(Step, module="gated", adds_projection=False):
    """state' = u ⊙ state + (1 − u) ⊙ modReLU(projected₃ + r ⊙ product₃).

    r = σ̂(product₁ + projected₁), u = σ̂(product₂ + projected₂). Parameters: modReLU's bias.
    """


class GatedRecurrent(Step, module="gated", adds_projection=False):
    """state' = z ⊙ state + (1 − z) ⊙ tanh(projected₃ + r ⊙ (product₃ + d)).

    r = σ̂(product₁ + projected₁), z = σ̂(product₂ + projected₂). Parameters: d (hidden,).
    """


class HardGated(Step, module="gated"):
    """state' = (1 − q) ⊙ state + q ⊙ tanh(s₂), q = min(max(½ + slope s₁, 0), 1).

    s = product + projected.

    Args:
        slope: The slope of the gate.
    """


class Iterated(Step, module="incremental"):
    """K steps towards the equilibrium, then the increment; weights: η (K,).

    Args:
        decay: The number α.
    """


class Lipschitz(Step, module="euler", adds_projection=False):
    """state' = state + step·(product₁ + tanh(product₂ + projected)).

    Args:
        step: The size of the step.
    """


class LongShort(Step, module="gated", has_memory=True):
    """The LSTM step: gates i, f, g, o from product + projected, a separate memory."""


class NormalisedLongShort(Step, module="normalised", adds_projection=False, has_memory=True):
    """The LSTM step with normalised product and memory, and masks.

    weights: gain of the product (4 hidden,), gain and shift of the memory (hidden,).

    Args:
        normalise: 1 or 0.
        masks: 1 if the projected input has columns of masks, else 0.
    """


class NormalisedGatedRecurrent(Step, module="normalised", adds_projection=False):
    """The GRU step with normalised products, and masks.

    weights: gain and shift of the product (3 hidden,).

    Args:
        normalise: 1 or 0.
        masks: 1 if the projected input has columns of masks, else 0.
    """


class LightRecurrence(Step, module="gated", adds_projection=False, has_memory=True):
    """Forget and reset gates; weights: their recurrent weights (hidden,) each."""


class LongExpressive(Step, module="lem", adds_projection=False, has_memory=True):
    """Two states, of which the slow one reads the fast one; weights: Wᵀ and W of its product.

    Args:
        step: The longest step Δt.
    """
