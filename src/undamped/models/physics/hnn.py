"""HNN (Greydanus, Dzamba and Yosinski, 2019): the motion is the gradient of a learned energy."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel, MotionSolveOptions
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.energies import PerceptronHamiltonian
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.promised import ENERGY, SYMPLECTIC, VOLUME
from undamped.models.physics.state_model import space_of
from undamped.ode.flows.solve_options import solver_arguments

Angles = Literal["plain", "embedded"]


@models.register("hnn")
class HNN(MotionModel):
    """Hamiltonian neural network: one number of a state is learned, its energy; motion follows.

    Equation:
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q

    Symbols:
        q positions, p momenta, H a perceptron.

    Promise:
        The field keeps its own energy H and the volume of phase space, whatever the weights. Steps
        are symplectic with method=implicit-midpoint; with leapfrog they are not, since H need not
        be of the form T(p) + V(q), and none is promised. The true energy is kept as well as H was
        learned.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: Activation of H; it has to have two derivatives.
        angles: Whether H sees angles as numbers or by cosine and sine.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

    Example:
        >>> model = undamped.models.HNN(2)
        >>> model(torch.randn(5, 4)).shape, model.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
    """

    usual_choice = True
    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {"task": {"form": "derivative"}, "model": {"hidden_size": 200}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 200,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        angles: Angles = "plain",
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "HNN")
        coordinates = Coordinates.of(space, "HNN")
        field = PerceptronHamiltonian(
            coordinates.freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            angles=coordinates.angles if angles == "embedded" else (),
        )
        self._build(space, field, solver_arguments(solve, MotionSolveOptions), coordinates)
