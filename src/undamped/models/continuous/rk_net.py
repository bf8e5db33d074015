"""Neural ODE of fixed Runge–Kutta steps, with a linear readout."""

from __future__ import annotations

from typing import Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import KeepOptions
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.flows.neural_ode import NeuralODE


@models.register("rk-net")
class RKNet(ContinuousModel):
    """A neural ODE with fixed Runge–Kutta steps, trained by back-propagation through them.

    Equation:
        h' = h + Ψ_{T/n}(t, h), n times

    Symbols:
        Ψ a step of the classical method of order four.

    Promise:
        None: steps of a fixed size follow a homeomorphism as closely as their size allows.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        steps: n.
        augmented_size: Zeros added to the input.
        method: Explicit method.
        depth: T.
        keep: What training keeps of gradients: see `KeepOptions`.

    Example:
        >>> model = undamped.models.RKNet(2, 2, steps=6)

    Reference:
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018, table 1.
    """

    promises = ()

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        steps: PositiveInt = 6,
        augmented_size: NonNegativeInt = 0,
        method: str = "rk4",
        depth: PositiveFloat = 1.0,
        **keep: Unpack[KeepOptions],
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        field = PerceptronField(size, hidden_size)
        self.flow = NeuralODE(
            field,
            times=(0.0, depth),
            method=method,
            step_size=depth / steps,
            gradient="backprop",
        )
        self.keep(keep)
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
