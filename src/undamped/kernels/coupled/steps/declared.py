"""The elementwise parts of `coupled_scan`, by name and constants, without their kernels.

A compiler that traces a network needs no more. The kernels are in the module that `home` names,
and so is Numba, which is imported when a loop is first asked for.
"""

from __future__ import annotations

from undamped.kernels.coupled.contract import Activation, Step


class Tanh(Activation):
    """carried' = tanh(product + projected)."""

    home = "activation"
    in_place = True


class LeakyRelu(Activation):
    """carried' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """

    home = "activation"
    in_place = True

    def __init__(self, leak: float) -> None:
        self.constants = (leak,)


class ModRelu(Activation):
    """carried' = sign(s) relu(|s| + b), s = product + projected; weights: b (hidden,)."""

    home = "activation"
    in_place = True


class ComplexModRelu(Activation):
    """carried' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that keeps the division from zero.
    """

    home = "activation"

    def __init__(self, softening: float) -> None:
        self.constants = (softening,)


class Euler(Step):
    """carried' = carried + step·tanh(product + projected).

    Args:
        step: The size of the step.
    """

    home = "antisymmetric"

    def __init__(self, step: float) -> None:
        self.constants = (step,)


class GatedEuler(Step):
    """carried' = carried + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """

    home = "antisymmetric"
    adds_projection = False

    def __init__(self, step: float) -> None:
        self.constants = (step,)


class CoupledOscillator(Step):
    """z' = z + step·(tanh(product + projected) − γ y − ε z), y' = y + step·z'.

    Args:
        step: The size of the step.
        stiffness: The number γ.
        damping: The number ε.
    """

    home = "cornn"

    def __init__(self, step: float, stiffness: float, damping: float) -> None:
        self.constants = (step, stiffness, damping)


class WeightedSum(Step):
    """carried' = α tanh(product + projected) + β carried; weights: α (1,), β (1,)."""

    home = "fastrnn"


class FastGate(Step):
    """carried' = (ζ(1 − z) + ν) ⊙ tanh(s) + z ⊙ carried, z = σ̂(s + d), s = product + projected.

    Parameters: d (hidden,), ζ (1,), ν (1,).
    """

    home = "fastrnn"


class GatedOrthogonal(Step):
    """carried' = u ⊙ carried + (1 − u) ⊙ modReLU(projected₃ + r ⊙ product₃).

    r = σ̂(product₁ + projected₁), u = σ̂(product₂ + projected₂). Parameters: modReLU's bias.
    """

    home = "goru"
    adds_projection = False


class GatedRecurrent(Step):
    """carried' = z ⊙ carried + (1 − z) ⊙ tanh(projected₃ + r ⊙ (product₃ + d)).

    r = σ̂(product₁ + projected₁), z = σ̂(product₂ + projected₂). Parameters: d (hidden,).
    """

    home = "gru"
    adds_projection = False


class Iterated(Step):
    """K steps towards the equilibrium, then the increment; weights: η (K,).

    Args:
        decay: The number α.
    """

    home = "incremental"

    def __init__(self, decay: float) -> None:
        self.constants = (decay,)


class Lipschitz(Step):
    """carried' = carried + step·(product₁ + tanh(product₂ + projected)).

    Args:
        step: The size of the step.
    """

    home = "lipschitz"
    adds_projection = False

    def __init__(self, step: float) -> None:
        self.constants = (step,)


class LongShort(Step):
    """The LSTM step: gates i, f, g, o from product + projected, a memory beside the state."""

    home = "lstm"
    has_memory = True


class LightRecurrence(Step):
    """Forget and reset gates; weights: their recurrent weights (hidden,) each."""

    home = "sru"
    adds_projection = False
    has_memory = True


class LongExpressive(Step):
    """Two states, the slow one reading the fast one; weights: Wᵀ and W of its product.

    Args:
        step: The longest step Δt.
    """

    home = "lem"
    adds_projection = False
    has_memory = True

    def __init__(self, step: float) -> None:
        self.constants = (step,)
