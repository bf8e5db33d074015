"""Contracts of Hamiltonian and Lagrangian fields, their ports, and the parts they are built of.

The field of a model is in the module of that model.
"""

from undamped.models.physics.fields.coordinates import Coordinates as Coordinates
from undamped.models.physics.fields.coordinates import PositionFeatures as PositionFeatures
from undamped.models.physics.fields.hamiltonian import HamiltonianField as HamiltonianField
from undamped.models.physics.fields.hamiltonian import SeparableField as SeparableField
from undamped.models.physics.fields.lagrangian import LagrangianField as LagrangianField
from undamped.models.physics.fields.ports import ConstantInput as ConstantInput
from undamped.models.physics.fields.ports import Forced as Forced
from undamped.models.physics.fields.ports import Ports as Ports
from undamped.models.physics.fields.smooth_perceptron import PositiveMatrix as PositiveMatrix
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron as SmoothPerceptron
