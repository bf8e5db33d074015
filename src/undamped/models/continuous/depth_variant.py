"""Neural ODE with parameters that change with depth, and a linear readout."""

from __future__ import annotations

from typing import Literal, Unpack

from torch import nn

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.options import DepthOptions, flow_arguments, flow_of
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.depth_variant import Basis, GalerkinField
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.flows.stacked import StackedODE

_OWN_PARAMETERS = "Each piece has parameters of its own, whose directions cannot agree."


@models.register("depth-variant-node")
class DepthVariantNODE(ContinuousModel):
    """A neural ODE whose parameters change with depth.

    Equation:
        ḣ = f_{θ(t)}(h),  θ(t) = Σ_j α_j ψ_j(t);  stacked: θ constant on each piece

    Symbols:
        ψ_j basis functions, α_j coefficients.

    Promise:
        The flow is a homeomorphism: two inputs never meet, and solving back from the end gives the
        input again.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        basis: Fourier, Chebyshev, Legendre polynomials or piecewise constant; `stacked` builds a
            field of its own for each piece and never steps across a border.
        terms: Basis functions, or pieces.
        augmented_size: Zeros added to the input.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

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
        hidden_size: PositiveInt = 32,
        basis: Literal["fourier", "chebyshev", "polynomial", "piecewise", "stacked"] = "fourier",
        terms: PositiveInt = 5,
        augmented_size: NonNegativeInt = 0,
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        size, depth = input_size + augmented_size, solve["depth"]  # type: ignore[typeddict-item]
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        if basis == "stacked":
            fields = [PerceptronField(size, hidden_size, time=False) for _ in range(terms)]
            self.flow = StackedODE(fields, depth=depth, **flow_arguments(solve))
        else:
            kind: Basis = basis
            field = GalerkinField(size, hidden_size, basis=kind, terms=terms, depth=depth)
            self.flow = flow_of(field, solve)
        apart = basis in ("stacked", "piecewise")
        self.keep(solve, **({"direction": _OWN_PARAMETERS} if apart else {}))
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
