"""Fields with a law: Hamiltonian and Lagrangian ones, their ports, and a baseline without."""

from undamped.fields.physics.coordinates import Coordinates
from undamped.fields.physics.energies import PerceptronHamiltonian, PerceptronSeparable
from undamped.fields.physics.hamiltonian import HamiltonianField, SeparableField
from undamped.fields.physics.lagrangian import LagrangianField
from undamped.fields.physics.mass_lagrangian import MassLagrangian
from undamped.fields.physics.perceptron_lagrangian import PerceptronLagrangian
from undamped.fields.physics.plain import PlainField
from undamped.fields.physics.ports import ConstantInput, Driven, Ports
from undamped.fields.physics.smooth_perceptron import SmoothPerceptron

__all__ = [
    "ConstantInput",
    "Coordinates",
    "Driven",
    "HamiltonianField",
    "LagrangianField",
    "MassLagrangian",
    "PerceptronHamiltonian",
    "PerceptronLagrangian",
    "PerceptronSeparable",
    "PlainField",
    "Ports",
    "SeparableField",
    "SmoothPerceptron",
]
