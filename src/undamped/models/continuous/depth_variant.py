"""Neural ODE with parameters that change with depth, and a linear readout."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import (
    AugmentedOptions,
    DepthOptions,
    flow_arguments,
    flow_of,
)
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.depth_variant import Basis, GalerkinField
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.flows.neural_ode import StackedODE

_SEPARATE = "Each segment of depth has its own parameters, whose gradients are not comparable."


class DepthVariantOptions(AugmentedOptions, DepthOptions, total=False):
    """Field, depth and solver of a depth-variant neural ODE."""


@models.register("depth-variant-node")
class DepthVariantNODE(ContinuousModel):
    """A neural ODE whose parameters change with depth.

    Equation:
        ḣ = f_{θ(t)}(h),  θ(t) = Σ_j α_j ψ_j(t);  stacked: θ constant on each segment

    Symbols:
        ψ_j basis functions, α_j coefficients.

    Promise:
        The flow is a homeomorphism: two inputs never meet, and solving back from the end recovers
        the input.

    Args:
        basis: Fourier, Chebyshev, Legendre polynomials or piecewise constant; `stacked` builds one
            field for each segment and never steps across a border.
        terms: Number of basis functions, or of segments.
        options: See `AugmentedOptions` and `DepthOptions`.

    Example:
        >>> model = undamped.models.DepthVariantNODE(2, 2, basis="chebyshev", terms=4)

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        basis: Literal["fourier", "chebyshev", "polynomial", "piecewise", "stacked"] = "fourier",
        terms: PositiveInt = 5,
        **options: Unpack[DepthVariantOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        augmented_size, hidden_size = values["augmented_size"], values["hidden_size"]
        size, depth = input_size + augmented_size, values["depth"]
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        if basis == "stacked":
            fields = [PerceptronField(size, hidden_size, time=False) for _ in range(terms)]
            self.flow = StackedODE(fields, depth=depth, **flow_arguments(options))
        else:
            kind: Basis = basis
            field = GalerkinField(size, hidden_size, basis=kind, terms=terms, depth=depth)
            self.flow = flow_of(field, options)
        separate = basis in ("stacked", "piecewise")
        self.keep(options, **({"direction": _SEPARATE} if separate else {}))
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
