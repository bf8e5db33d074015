"""Neural ODE with a linear readout, plain and augmented."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import DepthOptions, FieldOptions, flow_of
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.perceptron import PerceptronField


class NODEOptions(FieldOptions, DepthOptions, total=False):
    """Field, depth and solver of a neural ODE."""


@models.register("node")
class NODE(ContinuousModel):
    """A neural ODE between the input and a linear readout, with optional augmentation.

    Equation:
        ḣ = f(t, h),  h(0) = [x, 0],  ŷ = W h(T) + b

    Symbols:
        x input, h state, f a perceptron, T depth, W and b readout.

    Promise:
        The flow is a homeomorphism: two inputs never meet, and solving back from the end recovers
        the input. So it cannot separate a disc from a ring around it; with one added dimension
        (augmented_size=1) it can.

    Args:
        augmentation: Whether the added features are zeros or computed from the input.
        options: See `FieldOptions` and `DepthOptions`.

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
        augmentation: Literal["zero", "input"] = "zero",
        **options: Unpack[NODEOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        augmented_size = values["augmented_size"]
        if augmentation != "zero" and not augmented_size:
            raise OptionError(
                f"augmentation='{augmentation}' has no effect with augmented_size=0. Set "
                "augmented_size to the number of features to add."
            )
        size = input_size + augmented_size
        self.start = (
            Augmentation(input_size, augmented_size, augmentation)
            if augmented_size
            else nn.Identity()
        )
        field = PerceptronField(size, values["hidden_size"], activation=values["activation"])
        self.flow = flow_of(field, options)
        self.keep(options)
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
