"""The baseline of physics networks: a perceptron as the field, told nothing about physics."""

from __future__ import annotations

from typing import ClassVar, Unpack

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel, MotionSolveOptions
from undamped.models.physics.fields.plain import PlainField
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.hnn import Angles
from undamped.models.physics.state_model import space_of
from undamped.ode.flows.solve_options import solver_arguments


@models.register("plain-ode")
class PlainODE(MotionModel):
    """A perceptron as the rates of a state: the plain network that physics is compared with.

    Trained on derivatives it is the baseline of the HNN paper; trained on trajectories it is a
    neural ODE.

    Equation:
        ż = f(z, u)

    Symbols:
        z state, u inputs, f a perceptron.

    Promise:
        None: energy drifts, and nothing says how fast.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: Activation of f.
        second_order: Whether only velocities are learned, and positions follow them; for states
            of positions and velocities.
        angles: Whether f sees angles as numbers or by cosine and sine.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

    Example:
        >>> model = undamped.models.PlainODE(2)
        >>> model(torch.randn(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018.
    """

    usual_choice = True
    recipe: ClassVar = {"model": {"hidden_size": 200}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 200,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        second_order: bool = False,
        angles: Angles = "plain",
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "PlainODE")
        half = space.size // 2
        if second_order and space.kinds[half:] != ("velocity",) * half:
            raise OptionError(
                explain(
                    "PlainODE.second_order",
                    expected="false unless the second half of a state are velocities",
                    got=f"true with {', '.join(space.kinds)}",
                    remedy="Leave it out.",
                )
            )
        field = PlainField(
            space.size,
            len(space.inputs),
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            second_order=second_order,
            angles=space.indices("angle") if angles == "embedded" else (),
        )
        self._build(space, field, solver_arguments(solve, MotionSolveOptions))
