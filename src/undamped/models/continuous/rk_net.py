"""Neural ODE of fixed Runge–Kutta steps, with a linear readout."""

from __future__ import annotations

from typing import Any, Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import AugmentedOptions, KeepOptions
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.flows.neural_ode import NeuralODE


class RKNetOptions(AugmentedOptions, KeepOptions, total=False):
    """Field of a Runge–Kutta network, and the penalty on gradients."""


@models.register("rk-net")
class RKNet(ContinuousModel):
    """A neural ODE with fixed Runge–Kutta steps, trained by backpropagation through them.

    Equation:
        h' = h + Ψ_{T/n}(t, h), n times

    Symbols:
        Ψ a step of the classical method of order four.

    Promise:
        None: fixed steps approximate a homeomorphism up to their error.

    Args:
        steps: n.
        method: Explicit method.
        depth: T.
        options: See `AugmentedOptions` and `KeepOptions`.

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
        steps: PositiveInt = 6,
        method: str = "rk4",
        depth: PositiveFloat = 1.0,
        **options: Unpack[RKNetOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        augmented_size = values["augmented_size"]
        size = input_size + augmented_size
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        field = PerceptronField(size, values["hidden_size"])
        self.flow = NeuralODE(
            field,
            times=(0.0, depth),
            method=method,
            step_size=depth / steps,
            gradient="backprop",
        )
        self.keep(options)
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
