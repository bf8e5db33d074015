"""Promises: what a model claims about its signals and gradients.

A class declares its promises; `undamped.analysis.promises` measures them, one test does so for
the whole registry, and reports print claim and measurement side by side. This module holds only
the declarations, so that cells and fields need not import an instrument.

A kind is shared by several classes. A property that only one class has is stated in its docstring
and tested with that class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Kind(Enum):
    """The kind of a promise, which says how it is measured and by which methods of the class.

    A cell has the methods of `undamped.nn.Cell`. A flow over depth has `example(count, generator)`,
    which returns states and a condition, `carry(state, condition)` and `carry_back`. A model of a
    dynamical system has `example_states(count, generator)`, which returns states and inputs,
    `derivative(states, u)`, `energy(states)` and the power of the inputs, `supplied(states, u)`.
    """

    BOUNDED_STEP_GRADIENT = "bounded-step-gradient"
    """‖∂h'/∂h‖₂ of a cell is at most `step_gradient_bound()`."""
    STARTS_ISOMETRIC = "starts-isometric"
    """At initialisation `recurrent_matrix()` preserves every norm."""
    ISOMETRIC = "isometric"
    """`recurrent_matrix()` preserves every norm, before and after training."""
    INVERTIBLE = "invertible"
    """`inverse` of a cell, `undo` of a layer or `phase_undo` of a model inverts a step."""
    VOLUME_PRESERVING = "volume-preserving"
    """The Jacobian of a step in its state has determinant one."""
    SYMPLECTIC = "symplectic"
    """The Jacobian J of a step preserves the symplectic form: Jᵀ Ω J = Ω."""
    BOUNDED_STATE = "bounded-state"
    """The parts of a cell's state never exceed `state_bound(steps)`."""
    SCALED_SPECTRUM = "scaled-spectrum"
    """The eigenvalues of `recurrent_matrix()` have the moduli `spectrum()`, whatever the values of
    `free_parameters()` are."""
    STABLE_FLOW = "stable-flow"
    """Eigenvalues of `flow_jacobian` have real parts between −`diffusion` and zero."""
    INVERTIBLE_FLOW = "invertible-flow"
    """`carry_back` of a flow inverts `carry`."""
    PAIRED_SPECTRUM = "paired-spectrum"
    """Eigenvalues of the Jacobian of `derivative(t, state)` come in pairs of sum −`damping`."""
    VOLUME_RATE = "volume-rate"
    """Along `field_now()` the log-determinant of a state of n entries grows by `volume_rate(n)`."""
    BOUNDED_VELOCITY = "bounded-velocity"
    """No position moves further than `end_of_depth`."""
    BOUNDED_ADJOINT = "bounded-adjoint"
    """log‖∂L/∂h(t)‖ differs from its value at the end by at most `adjoint_exponents(times)`."""
    ISOSPECTRAL = "isospectral"
    """The skew matrices `skew_at(times)` have the same eigenvalues at all depths."""
    BOUNDED_PATH = "bounded-path"
    """The parameters `path_at(times)` change no faster than `path_rate()`."""
    PRESERVED_ENERGY = "kept-energy"
    """Without inputs the field does not change its energy: ∇E · f = 0."""
    DIVERGENCE_FREE = "divergence-free"
    """The field preserves the volume of phase space: tr ∂f/∂z = 0."""
    POWER_BALANCE = "power-balance"
    """The energy changes by exactly the power that inputs supply."""
    PASSIVE = "passive"
    """The energy never grows by more than the power that inputs supply."""
    POSITIVE_MASS = "positive-mass"
    """`mass_matrix(states)` is positive definite: no eigenvalue is below `smallest_mass`."""
    PRESERVED_CONSTRAINTS = "kept-constraints"
    """The field does not change `constraints(states)`."""
    RELATIONS_ONLY = "relations-alone"
    """`decide(codes)` depends on `relations(codes)` only."""
    CONTRACTING_GAPS = "contracting-gaps"
    """`flow(state, gaps)` between samples increases no norm, over any gap."""
    SEMIGROUP = "semigroup"
    """The flow over two gaps in succession is the flow over their sum."""
    A_STABLE = "a-stable"
    """No step of a solver, however long, lets y' = λ y grow where Re λ ≤ 0."""
    L_STABLE = "l-stable"
    """A step of a solver leaves nothing of y' = λ y as λ goes to −∞."""


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
