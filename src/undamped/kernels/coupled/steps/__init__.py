"""The elementwise steps of `coupled_scan`, by name and constants, without their kernels.

A compiler that traces a network needs no more. The kernels are in the module of this package that
`kernel_module` names; it imports Numba, when a loop is first needed.
"""

from __future__ import annotations

from undamped.kernels.coupled.contract import Activation, Step


class Tanh(Activation):
    """state' = tanh(product + projected)."""

    kernel_module = "activation"
    in_place = True


class LeakyRelu(Activation):
    """state' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """

    kernel_module = "activation"
    in_place = True


class ModRelu(Activation):
    """state' = sign(s) relu(|s| + b), s = product + projected; weights: b (hidden,)."""

    kernel_module = "activation"
    in_place = True


class ComplexModRelu(Activation):
    """state' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that keeps the division from zero.
    """

    kernel_module = "activation"


class Euler(Step):
    """state' = state + step·tanh(product + projected).

    Args:
        step: The size of the step.
    """

    kernel_module = "euler"


class GatedEuler(Step):
    """state' = state + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """

    kernel_module = "euler"
    adds_projection = False


class CoupledOscillator(Step):
    """z' = z + step·(tanh(product + projected) − γ y − ε z), y' = y + step·z'.

    Args:
        step: The size of the step.
        stiffness: The number γ.
        damping: The number ε.
    """

    kernel_module = "euler"


class WeightedSum(Step):
    """state' = α tanh(product + projected) + β state; weights: α (1,), β (1,)."""

    kernel_module = "gated"


class FastGate(Step):
    """state' = (ζ(1 − z) + ν) ⊙ tanh(s) + z ⊙ state, z = σ̂(s + d), s = product + projected.

    Parameters: d (hidden,), ζ (1,), ν (1,).
    """

    kernel_module = "gated"


class GatedOrthogonal(Step):
    """state' = u ⊙ state + (1 − u) ⊙ modReLU(projected₃ + r ⊙ product₃).

    r = σ̂(product₁ + projected₁), u = σ̂(product₂ + projected₂). Parameters: modReLU's bias.
    """

    kernel_module = "gated"
    adds_projection = False


class GatedRecurrent(Step):
    """state' = z ⊙ state + (1 − z) ⊙ tanh(projected₃ + r ⊙ (product₃ + d)).

    r = σ̂(product₁ + projected₁), z = σ̂(product₂ + projected₂). Parameters: d (hidden,).
    """

    kernel_module = "gated"
    adds_projection = False


class Iterated(Step):
    """K steps towards the equilibrium, then the increment; weights: η (K,).

    Args:
        decay: The number α.
    """

    kernel_module = "incremental"


class Lipschitz(Step):
    """state' = state + step·(product₁ + tanh(product₂ + projected)).

    Args:
        step: The size of the step.
    """

    kernel_module = "euler"
    adds_projection = False


class LongShort(Step):
    """The LSTM step: gates i, f, g, o from product + projected, a memory beside the state."""

    kernel_module = "gated"
    has_memory = True


class LightRecurrence(Step):
    """Forget and reset gates; weights: their recurrent weights (hidden,) each."""

    kernel_module = "gated"
    adds_projection = False
    has_memory = True


class LongExpressive(Step):
    """Two states, the slow one reading the fast one; weights: Wᵀ and W of its product.

    Args:
        step: The longest step Δt.
    """

    kernel_module = "lem"
    adds_projection = False
    has_memory = True
