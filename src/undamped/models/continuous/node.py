"""Neural ODE with a linear readout, plain and augmented."""

from __future__ import annotations

from typing import Literal, Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import DepthOptions, flow_of
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.perceptron import Activation, PerceptronField


@models.register("node")
class NODE(ContinuousModel):
    """A neural ODE between the input and a linear readout, augmented if wished.

    Equation:
        ḣ = f(t, h),  h(0) = [x, 0],  ŷ = W h(T) + b

    Symbols:
        x input, h state, f a perceptron, T depth, W and b readout.

    Promise:
        The flow is a homeomorphism: two inputs never meet, and solving back from the end gives the
        input again. So it cannot carry an inner disc out through a ring around it; with one
        added dimension (augmented_size=1) it can.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        augmented_size: Zeros added to the input (ANODE); 0 is the plain neural ODE.
        augmentation: Whether the added features are zeros or computed from the input.
        activation: Activation of the field.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

    Example:
        >>> model = undamped.models.NODE(2, 2, hidden_size=32, augmented_size=1)

    Reference:
        R. Chen and others. NeurIPS, 2018. E. Dupont and others. Augmented neural ODEs. NeurIPS,
        2019.
    """

    usual_choice = True

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        augmented_size: NonNegativeInt = 0,
        augmentation: Literal["zero", "input"] = "zero",
        activation: Activation = "tanh",
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        if augmentation != "zero" and not augmented_size:
            raise OptionError(
                explain(
                    "augmentation",
                    expected="to be left out with augmented_size=0, which adds nothing",
                    got=f"'{augmentation}'",
                    remedy="Set augmented_size to the number of features to add.",
                )
            )
        size = input_size + augmented_size
        self.start = (
            Augmentation(input_size, augmented_size, augmentation)
            if augmented_size
            else nn.Identity()
        )
        field = PerceptronField(size, hidden_size, activation=activation)
        self.flow = flow_of(field, solve)
        self.keep(solve)
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
