"""Contracts of Hamiltonian and Lagrangian fields, their ports, and the parts they are built of.

The field of a model is in the module of that model.
"""

from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures
from undamped.models.physics.fields.hamiltonian import HamiltonianField, SeparableField
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import ConstantInput, Forced, Ports
from undamped.models.physics.fields.smooth_perceptron import PositiveMatrix, SmoothPerceptron

__all__ = [
    "ConstantInput",
    "Coordinates",
    "Forced",
    "HamiltonianField",
    "LagrangianField",
    "Ports",
    "PositionFeatures",
    "PositiveMatrix",
    "SeparableField",
    "SmoothPerceptron",
]
