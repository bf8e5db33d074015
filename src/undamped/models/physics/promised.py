"""What a field and a solver promise together, and what they do not."""

from __future__ import annotations

from torch import nn

from undamped._base.promises import Kind, Promise
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.ode import Solver

ENERGY = Promise(Kind.KEPT_ENERGY, "the field keeps its energy: ∇E · f = 0")
VOLUME = Promise(Kind.DIVERGENCE_FREE, "the field keeps phase volume: div f = 0")
BALANCE = Promise(Kind.POWER_BALANCE, "energy changes by the power of the inputs: dE/dt = yᵀu")
PASSIVE = Promise(Kind.PASSIVE, "energy never grows by more than the power supplied: dE/dt ≤ yᵀu")
MASS = Promise(Kind.POSITIVE_MASS, "masses are positive: no eigenvalue of M⁻¹ below its bound")
CIRCLE = Promise(Kind.KEPT_CONSTRAINTS, "angles stay angles: the field keeps cos² + sin²")
SYMPLECTIC = Promise(Kind.SYMPLECTIC, "every step is symplectic: DᵀJD = J")


def promises_of(field: nn.Module, solver: Solver) -> tuple[Promise, ...]:
    """Return what a field promises when a solver takes its steps.

    Args:
        field: The field.
        solver: The method.
    """
    if not hasattr(field, "energy"):
        return ()
    ports = getattr(field, "ports", None)
    if ports is not None and ports.friction is not None:
        return (PASSIVE,)
    found = [ENERGY] if ports is None or ports.inputs is None else [ENERGY, BALANCE]
    if isinstance(field, HamiltonianField):
        found.append(VOLUME)
        if is_symplectic(field, solver):
            found.append(SYMPLECTIC)
    return tuple(found)


def is_symplectic(field: HamiltonianField, solver: Solver) -> bool:
    """Whether steps of a solver are symplectic for a field, in its own phase space.

    Tao's are in a doubled one; a model that steps in both copies says so itself.
    """
    fits = field.separable or not solver.needs_separable
    return fits and solver.symplectic and not solver.doubles_state


def cautions(field: nn.Module, solver: Solver) -> list[str]:
    """Return what somebody who chose a symplectic solver has to know."""
    if not (isinstance(field, HamiltonianField) and solver.symplectic):
        return []
    if is_symplectic(field, solver) or solver.doubles_state:
        return []
    why = "has friction" if field.splits else "is not of the form T(p) + V(q)"
    return [
        f"'{solver.name}' is symplectic for separable energies alone, and this one {why}: no "
        "symplectic step is promised. 'implicit-midpoint' has one for any energy; 'srnn' has an "
        "energy that is separable."
    ]
