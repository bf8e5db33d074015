"""Neural ODEs with a linear readout: plain, of fixed steps, depth-variant and data-controlled."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import (
    AugmentedOptions,
    ContinuousModel,
    DepthOptions,
    FieldOptions,
    KeepOptions,
    flow_arguments,
    flow_of,
)
from undamped.ode.fields.augmented import Augmentation, Controlled, DepthNetwork
from undamped.ode.fields.depth_variant import Basis, GalerkinField
from undamped.ode.fields.perceptron import Activation, PerceptronField
from undamped.ode.flows.neural_ode import NeuralODE, StackedODE
from undamped.ode.settings import choose_solver

_SEPARATE = "Each segment of depth has its own parameters, whose gradients are not comparable."
_OWN_DEPTHS = "With adaptive depth samples have no common times at which y can be summed."


def augmentation_of(input_size: int, augmented_size: int, *kind: Any) -> nn.Module:
    """Return the module that adds features to the input, or the identity if there are none."""
    return Augmentation(input_size, augmented_size, *kind) if augmented_size else nn.Identity()


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
        start = augmentation_of(input_size, augmented_size, augmentation)
        field = PerceptronField(size, values["hidden_size"], activation=values["activation"])
        self._assemble(start, flow_of(field, options), (input_size, size, output_size), options)


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
        steps: Number n of steps.
        method: Explicit method.
        depth: End T of depth.
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
        size = input_size + values["augmented_size"]
        start = augmentation_of(input_size, values["augmented_size"])
        solver = {"method": method, "step_size": depth / steps, "gradient": "backprop"}
        flow = NeuralODE(PerceptronField(size, values["hidden_size"]), times=(0.0, depth), **solver)
        self._assemble(start, flow, (input_size, size, output_size), options)


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
        start = augmentation_of(input_size, augmented_size)
        if basis == "stacked":
            fields = [PerceptronField(size, hidden_size, time=False) for _ in range(terms)]
            flow = StackedODE(fields, depth=depth, **flow_arguments(options))
        else:
            kind: Basis = basis
            field = GalerkinField(size, hidden_size, basis=kind, terms=terms, depth=depth)
            flow = flow_of(field, options)
        excluded = {"direction": _SEPARATE} if basis in ("stacked", "piecewise") else {}
        self._assemble(start, flow, (input_size, size, output_size), options, excluded)


@models.register("data-controlled-node")
class DataControlledNODE(ContinuousModel):
    """A neural ODE whose field also reads the input, to a depth that may depend on it.

    Equation:
        ż = f(t, [z, x]),  z(0) = x,  ŷ = W z(g(x)) + b;  g = T unless adaptive

    Symbols:
        x input, z state, T depth, g learned depth, which starts near T.

    Promise:
        For every input the flow is a homeomorphism of the state; states of different inputs, whose
        flows differ, may meet.

    Args:
        hidden_size: Width of the field.
        adaptive_depth: Whether every sample is integrated to its own depth g(x).
        activation: Activation of the field.
        solve: See `DepthOptions`.
        gradient: How gradients are computed; with adaptive depth all but `reversible`.

    Example:
        >>> model = undamped.models.DataControlledNODE(2, 2, adaptive_depth=True)

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
        adaptive_depth: bool = False,
        activation: Activation = "tanh",
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        field = PerceptronField(
            input_size, hidden_size, input_size=2 * input_size, activation=activation
        )
        excluded = {"parameters": _OWN_DEPTHS, "direction": _OWN_DEPTHS} if adaptive_depth else {}
        # Flow, depth and readout are built in this order, for the order of random numbers.
        self.flow = flow_of(field, solve)
        if adaptive_depth:
            _check_adaptive(self._ode)
        self.depth = DepthNetwork(input_size, self.end_of_depth) if adaptive_depth else None
        sizes = input_size, input_size, output_size
        self._assemble(nn.Identity(), self.flow, sizes, solve, excluded)

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the sample's depth, (batch, input)."""
        return self.carry(x, x)

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the sample's depth from one at the start, and the input."""
        return self._ode.solve(state, **self._controlled(context)).final

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the state at the start that flows to this one at the sample's depth."""
        return self._ode.inverse(state, **self._controlled(context))

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return random inputs, as states and as inputs of the field."""
        x, _ = super().example(count, generator)
        return x, x

    def _controlled(self, x: Tensor | None) -> dict[str, Any]:
        assert x is not None
        times = None if self.depth is None else self.depth.times(x)
        return {"times": times, "field": Controlled(self._ode.field, x)}


def _check_adaptive(flow: NeuralODE) -> None:
    solver = choose_solver(flow.method)
    if flow.gradient == "reversible":
        wrong, got = "gradient", "'reversible'"
    elif flow.step_size is not None:
        wrong, got = "step_size", f"{flow.step_size:g}"
    elif solver.implicit and flow.gradient == "adjoint":
        wrong, got = "gradient", f"'adjoint' with '{solver.name}'"
    elif not (solver.per_sample and solver.adaptive):
        wrong, got = "method", f"'{solver.name}'"
    else:
        return
    raise OptionError(
        "DataControlledNODE.adaptive_depth needs separate steps for every sample, got "
        f"{wrong}={got}. Use 'dopri5', 'tsit5', 'bosh3', 'heun', 'dopri8', or 'radau5' for stiff "
        "fields, gradient='checkpoint' and no step_size, or leave out adaptive_depth."
    )
