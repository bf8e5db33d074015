"""A promise: its kind, and a sentence that states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Kind(Enum):
    """The kind of a promise; each kind is measured in one way."""

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
    INVERTIBLE_FLOW = "invertible-flow"
    """Solving back from where a flow ends gives where it started: it is a homeomorphism."""
    PAIRED_SPECTRUM = "paired-spectrum"
    """Eigenvalues of the field's Jacobian come in pairs whose sum is −`damping`."""
    VOLUME_RATE = "volume-rate"
    """Along the flow the logarithm of a volume changes at the rate that `volume_rate` returns."""
    BOUNDED_VELOCITY = "bounded-velocity"
    """No position moves further than the time it is given."""
    CONSERVED = "conserved"
    """The number that `conserved` returns of a state is the same all along the flow."""
    PRESERVED_FORM = "kept-form"
    """The Jacobian M of the flow keeps the form S that `preserved_form` returns: MᵀSM = S."""
    ISOMETRIC_FLOW = "isometric-flow"
    """The flow, as it is solved, keeps the norms of states and of gradients."""
    BOUNDED_ADJOINT = "bounded-adjoint"
    """log‖∂L/∂h(t)‖ is no further from its end than `adjoint_exponents` allows."""
    ORTHOGONAL_PATH = "orthogonal-path"
    """The matrices that flow with depth are orthogonal everywhere, to rounding."""
    ISOSPECTRAL = "isospectral"
    """The skew matrices that flow with depth have the same eigenvalues everywhere."""
    BOUNDED_PATH = "bounded-path"
    """Parameters that flow with depth move no faster than `path_rate`."""
    LOG_DETERMINANT = "log-determinant"
    """The log-density changes by the log-determinant of the flow's Jacobian."""
    NORMALISED_DENSITY = "normalised-density"
    """The density integrates to one."""
    FIXED_STATE = "fixed-state"
    """A state takes as many bytes after many steps as after a few."""
    DIRECT_PATH = "direct-path"
    """A remembered state reaches what the next step reads in one step, by its attention weight."""
    PRESERVED_ENERGY = "kept-energy"
    """Without inputs the field does not change its energy: ∇E · f = 0."""
    DIVERGENCE_FREE = "divergence-free"
    """The field keeps the volume of phase space: tr ∂f/∂z = 0."""
    POWER_BALANCE = "power-balance"
    """The energy changes by the power that inputs supply, by no more and no less."""
    PASSIVE = "passive"
    """The energy never grows by more than the power that inputs supply."""
    POSITIVE_MASS = "positive-mass"
    """The mass matrix, or its inverse, is positive: no eigenvalue below `smallest_mass`."""
    PRESERVED_CONSTRAINTS = "kept-constraints"
    """The field does not change what `constraints(state)` returns."""
    RELATIONS_ONLY = "relations-alone"
    """Inputs between which all relations are the same get the same answer."""
    ISOMETRIC_GAPS = "isometric-gaps"
    """Between samples the flow keeps every norm, over any gap."""
    CONTRACTING_GAPS = "contracting-gaps"
    """Between samples the flow lets no norm grow, over any gap."""
    BOUNDED_GAPS = "bounded-gaps"
    """Between samples a state whose numbers lie between −1 and 1 stays there."""
    SEMIGROUP = "semigroup"
    """Two gaps after one another do exactly what one gap of their length does."""
    CORRECTED_ERROR = "corrected-error"
    """A correction within δ of the residual leaves an error of δ h^{p+1} in a step."""
    A_STABLE = "a-stable"
    """No step, however long, lets a solution of y' = λ y grow where Re λ ≤ 0."""
    L_STABLE = "l-stable"
    """A step leaves nothing of a solution of y' = λ y as λ goes to −∞."""


@dataclass(frozen=True)
class Promise:
    """One claim: its kind, and a sentence that states it."""

    kind: Kind
    claim: str


class Promising(Protocol):
    """A class with promises, or an object whose promises depend on its options."""

    @property
    def promises(self) -> Sequence[Promise]:
        """What it claims."""
        ...
