"""Fields with a law: Hamiltonian and Lagrangian ones, their ports, and a baseline without."""

from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.energies import PerceptronHamiltonian, PerceptronSeparable
from undamped.models.physics.fields.hamiltonian import HamiltonianField, SeparableField
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.mass_lagrangian import MassLagrangian
from undamped.models.physics.fields.perceptron_lagrangian import PerceptronLagrangian
from undamped.models.physics.fields.plain import PlainField
from undamped.models.physics.fields.ports import ConstantInput, Driven, Ports
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron

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
