"""Promises: what a model claims about its signals and gradients.

A class declares its promises; `undamped.analysis.promises` measures them, one test does so for
the whole registry, and reports print claim and measurement side by side. This module holds
only the declarations, so that cells and fields can make them without importing an instrument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What sort of claim a promise makes; each kind has one way of being measured."""

    BOUNDED_STEP_GRADIENT = "bounded-step-gradient"
    """‖∂h'/∂h‖₂ never exceeds the number that `step_gradient_bound()` returns."""
    STARTS_ISOMETRIC = "starts-isometric"
    """At initialisation the linear part of a step keeps every norm."""
    ISOMETRIC = "isometric"
    """The linear part of a step keeps every norm, before and after training."""
    INVERTIBLE = "invertible"
    """`inverse()` takes a step back exactly."""
    VOLUME_PRESERVING = "volume-preserving"
    """The Jacobian of a step in its state has determinant one."""
    SYMPLECTIC = "symplectic"
    """The Jacobian J of a step keeps the symplectic form: Jᵀ Ω J = Ω."""
    BOUNDED_STATE = "bounded-state"
    """States never exceed what `state_bound(steps)` returns."""
    SINGULAR_BAND = "singular-band"
    """All singular values of the recurrent matrix lie within `margin` of one."""
    SCALED_SPECTRUM = "scaled-spectrum"
    """The eigenvalues of the recurrent matrix have the moduli that `spectrum()` returns."""
    POLYNOMIAL_GROWTH = "polynomial-growth"
    """With eigenvalues on the unit circle, powers of the recurrent matrix grow polynomially."""
    STABLE_FLOW = "stable-flow"
    """Jacobian eigenvalues of the flow have real parts between −`diffusion` and zero."""
    SLOWER_VANISHING = "slower-vanishing"
    """Inputs of long ago reach the state with more weight than without momentum."""
    UNIT_GRADIENT = "unit-gradient"
    """At equilibrium ∂h'/∂h is minus the identity."""


@dataclass(frozen=True)
class Promise:
    """One claim: its kind, and the sentence a person reads."""

    kind: Kind
    claim: str
