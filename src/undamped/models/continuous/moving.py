"""Models whose field has parameters that change with depth by their own ODE.

Antisymmetric neural ODEs flow through a skew matrix, nonlinear or linear; the weights of ODEtoODE
flow on the orthogonal group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import Default, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel, DepthOptions, flow_of
from undamped.models.continuous.moving_fields import (
    AntisymmetricField,
    BoundedAntisymmetricField,
    GatedOrthogonalField,
    IsospectralAntisymmetricField,
    IsospectralOrthogonalField,
    MovingField,
    OrthogonalActivation,
)
from undamped.models.continuous.shared_flow import (
    AlongPath,
    SharedFlow,
    StillPath,
    TurningAlongPath,
)

TOLERANCE_FACTOR = 0.1
"""Tolerance of the parameters relative to that of the samples."""
FIXED_TOLERANCE = 1e-6
"""Tolerance of the parameters if the steps of the samples are fixed."""


class MovingModel(ContinuousModel):
    """A model whose field has parameters that move with depth, or constant ones."""

    shared: SharedFlow | None
    turning = False
    """Whether samples only rotate, so that Lie-group methods can solve their flow."""

    def _build(
        self,
        sizes: tuple[int, int, int],
        field: MovingField,
        moves: bool,
        solve: Mapping[str, Any],
        group: type,
        matrix_method: str | None,
        matrix_steps: int | None,
    ) -> None:
        # Input layer, flow, shared flow and readout are registered in this order.
        self.start = nn.Linear(*sizes[:2])
        self.flow = flow_of(field, solve, group)
        self.shared = None
        if moves:
            rtol = self.flow.rtol
            self.shared = SharedFlow(
                field,
                depth=self.end_of_depth,
                method=matrix_method,
                steps=matrix_steps,
                tolerance=FIXED_TOLERANCE if rtol is None else TOLERANCE_FACTOR * rtol,
            )
        self._assemble(self.start, self.flow, sizes, solve)

    @property
    def field(self) -> Any:
        """The field with its initial parameters."""
        return self._ode.field

    def field_now(self) -> Any:
        """Return the field of the samples, with parameters solved over all of depth."""
        if self.shared is None and not self.turning:
            return self.field
        path = self.shared.path() if self.shared else StillPath(self.field.beginning())
        along = AlongPath(self.field, path)
        return TurningAlongPath(along) if self.turning else along

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        return self._ode.solve(state, field=self.field_now()).final

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        return self._ode.inverse(state, field=self.field_now())


Motion = Literal["constant", "bounded", "isospectral"]
INVERTIBLE = ContinuousModel.promises
VOLUME = Promise(Kind.VOLUME_RATE, "the flow keeps volume: its determinant is one")
ADJOINT = Promise(
    Kind.BOUNDED_ADJOINT, "‖a(t)‖ is within exp(±½∫‖S‖) of ‖a(T)‖, the integral from t to T"
)
BOUNDED = Promise(Kind.BOUNDED_PATH, "no entry of A or b moves further than ρt/√n (bounded)")
SPECTRUM = Promise(Kind.ISOSPECTRAL, "S(t) has the same eigenvalues at every depth (isospectral)")
BY_MOTION: dict[Motion, tuple[Promise, ...]] = {
    "constant": (),
    "bounded": (BOUNDED,),
    "isospectral": (SPECTRUM,),
}


class MotionOptions(TypedDict, total=False):
    """State and motion of the parameters of an antisymmetric neural ODE."""

    hidden_size: Annotated[
        PositiveInt,
        Default(32, "Features of the state, which a linear layer computes from the input."),
    ]
    motion: Annotated[
        Motion,
        Default(
            "constant",
            "Whether A and b are constant, change at a bounded rate, or rotate so that S keeps its "
            "spectrum.",
        ),
    ]
    rate: Annotated[PositiveFloat, Default(1.0, "ρ, for a bounded motion.")]
    matrix_steps: Annotated[
        PositiveInt | None,
        Default(
            None,
            "Steps in which A and b are solved over depth, once for all samples; by default as "
            "many as a tenth of the samples' tolerance needs, or 1e-6 with fixed steps.",
        ),
    ]


class AntisymmetricOptions(MotionOptions, DepthOptions, total=False):
    """Motion, depth and solver of an antisymmetric neural ODE."""


class _Antisymmetric(MovingModel):
    """Common parts of both models: the field of a motion, and its invariants."""

    motion: Motion

    def _build_motion(
        self, sizes: tuple[int, int], options: Mapping[str, Any], group: type, *, linear: bool
    ) -> None:
        size, motion = options["hidden_size"], options["motion"]
        rate, matrix_steps = options["rate"], options["matrix_steps"]
        if rate != 1.0 and motion != "bounded":
            raise OptionError(
                f"rate={rate:g} has no effect with motion='{motion}'. Set motion='bounded', or "
                "leave it out."
            )
        if matrix_steps is not None and motion == "constant":
            raise OptionError(
                f"matrix_steps={matrix_steps} has no effect with motion='constant'. Set "
                "motion='bounded' or 'isospectral', or leave it out."
            )
        self.motion = motion
        if motion == "bounded":
            field = BoundedAntisymmetricField(size, linear=linear, rate=rate)
        elif motion == "isospectral":
            field = IsospectralAntisymmetricField(size, linear=linear)
        else:
            field = AntisymmetricField(size, linear=linear)
        widths = sizes[0], size, sizes[1]
        self._build(widths, field, motion != "constant", options, group, None, matrix_steps)

    def volume_rate(self, numbers: int) -> Tensor:
        """Return d log det/dt of the flow for a state of that size: a skew matrix has no trace."""
        return torch.zeros((), dtype=self.head.weight.dtype)

    def conserved(self, state: Tensor) -> Tensor:
        """Return Σ log cosh(S x + b), (batch,), conserved by the flow of constant parameters."""
        skew, bias = self.field.read(self.field.beginning(), *self.field.constants())
        size = (state @ skew.mT + bias).abs()
        # log cosh u = |u| + log(1 + exp(−2|u|)) − log 2, which does not overflow.
        return (size + torch.log1p(torch.exp(-2 * size)) - torch.log(2 * size.new_ones(()))).sum(-1)

    def preserved_form(self) -> Tensor:
        """Return S, the form that the flow of constant parameters preserves."""
        return self.field.skew()

    def skew_at(self, times: Tensor) -> Tensor:
        """Return S(t), (times, n, n), at times (times,)."""
        if self.shared is None:
            return self.field.skew().expand(len(times), -1, -1)
        skew = AlongPath(self.field, self.shared.path()).parameters_at(times.unsqueeze(1))[0]
        return skew.expand(len(times), -1, -1)  # a single time has no dimension of times

    def path_at(self, times: Tensor) -> Tensor:
        """Return A and b side by side, (times, n, …), of parameters that move at a bounded rate."""
        assert self.shared is not None
        return self.shared.path().at(times.unsqueeze(1)).expand(len(times), -1, -1)

    def path_rate(self) -> float:
        """Return how fast any entry of A or b may change."""
        return self.field.rate / self.field.size**0.5

    def adjoint_exponents(self, times: Tensor) -> Tensor:
        """Return ½∫‖S‖ from increasing times to the end: the largest change of log‖a‖."""
        if self.shared is None:
            norm = torch.linalg.matrix_norm(self.preserved_form(), 2)
            return 0.5 * norm * (self.end_of_depth - times)
        fine = torch.linspace(0, 1, 65).to(times)
        at = times[:, None] + (self.end_of_depth - times[:, None]) * fine
        norms = torch.linalg.matrix_norm(self.skew_at(at.flatten()), 2).reshape(at.shape)
        return 0.5 * torch.trapezoid(norms, at)


@models.register("antisymmetric-node")
class AntisymmetricNODE(_Antisymmetric):
    """A neural ODE through a skew matrix, with parameters constant or flowing with depth.

    Equation:
        ẋ = tanh(S x + b),  S = A − Aᵀ,  x(0) = V input,  ŷ = W x(T) + c
        bounded: Ȧ = ρ/√n tanh(U A R + C),  ḃ alike;  isospectral: Ṡ = [S, [S, N]],  ḃ = −[S, N] b

    Symbols:
        x state, A and b parameters, N learned and skew, U, R and C learned, V, W and c layers
        before and after.

    Promise:
        Jacobian eigenvalues are imaginary and volume is preserved, for all motions; neither ‖x‖ nor
        ‖a‖ is, but d log‖a‖/dt is at most ‖S‖/2. With constant parameters Σ log cosh(S x + b) is
        conserved and the flow's Jacobian M preserves MᵀSM = S: a direction in which gradients
        vanish has a partner in which they grow. A(t) has a bounded rate, or keeps its spectrum.

    Args:
        options: See `MotionOptions` and `DepthOptions`.

    Example:
        >>> model = undamped.models.AntisymmetricNODE(2, 2, hidden_size=16, motion="isospectral")

    Reference:
        B. Chang, M. Chen, E. Haber, E. Chi. AntisymmetricRNN: a dynamical system view on
        recurrent neural networks. ICLR, 2019.
    """

    promises = (*INVERTIBLE, VOLUME, ADJOINT, BOUNDED, SPECTRUM)

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        **options: Unpack[AntisymmetricOptions],
    ) -> None:
        super().__init__()
        self._build_motion((input_size, output_size), options, DepthOptions, linear=False)
        self.promises = (*INVERTIBLE, VOLUME, ADJOINT, *BY_MOTION[self.motion])


class TurningOptions(DepthOptions, total=False):
    """How a flow of rotations is solved: by default with a Lie-group method."""

    method: Annotated[str, Default("magnus4", "Solver; Lie-group ones keep norms exactly.")]
    step_size: Annotated[
        PositiveFloat | None, Default(0.1, "Size of all steps; none for a tolerance.")
    ]


class LinearAntisymmetricOptions(MotionOptions, TurningOptions, total=False):
    """Motion, depth and solver of a linear antisymmetric neural ODE."""


@models.register("linear-antisymmetric-node")
class LinearAntisymmetricNODE(_Antisymmetric):
    """The linear antisymmetric neural ODE: a rotation of the state, which preserves every norm.

    Equation:
        ẋ = S(t) x,  S = A − Aᵀ,  x(T) = Q x(0),  ŷ = W x(T) + c;  motions of A as in
        antisymmetric-node

    Symbols:
        x state, Q orthogonal, W and c readout.

    Promise:
        ‖x(t)‖ and ‖a(t)‖ are preserved, by Lie-group methods (magnus4, cayley and others) up to
        rounding, by others up to their error. The model is therefore linear: that is the cost of a
        gradient whose norm is preserved everywhere.

    Args:
        options: See `MotionOptions` and `DepthOptions`; by default magnus4 with steps of 0.1.

    Example:
        >>> model = undamped.models.LinearAntisymmetricNODE(2, 2, hidden_size=16, method="cayley")

    Reference:
        A. Iserles, S. Nørsett. On the solution of linear differential equations in Lie groups.
        Philosophical Transactions A 357 (1999).
    """

    turning = True
    promises = (*INVERTIBLE, VOLUME, BOUNDED, SPECTRUM)

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        **options: Unpack[LinearAntisymmetricOptions],
    ) -> None:
        super().__init__()
        self._build_motion((input_size, output_size), options, TurningOptions, linear=True)
        self.promises = (*INVERTIBLE, VOLUME, *BY_MOTION[self.motion])


GATES = {"gates": 4, "gate_size": 8}


@models.register("odetoode")
class ODEtoODE(MovingModel):
    """A neural ODE whose weights flow on the orthogonal group.

    Equation:
        ẋ = f(W x + c),  Ẇ = W b(t, W),  bᵀ = −b,  x(0) = V input,  ŷ = U x(T) + d
        gated: b = Σ_i a_i (C_i(t, W) − C_iᵀ);  isospectral: b = [WᵀQW, N], Q and N symmetric

    Symbols:
        x state, W orthogonal weights, c bias, f elementwise with |f'| ≤ 1, C_i small networks,
        a_i gates, Q and N learned, V, U and d layers before and after.

    Promise:
        W is orthogonal at every depth, to rounding, since its steps are rotations. So
        exp(−(T − t)) ‖a(T)‖ ≤ ‖a(t)‖ ≤ exp(T − t) ‖a(T)‖ for a = ∂L/∂x(t): the bound needs only
        ‖W‖ ≤ 1, is weak for large T, and does not bound the gradient of W.

    Args:
        hidden_size: Features of the state, which a linear layer computes from the input.
        form: How W rotates: by gated networks that read it, or by a double bracket that keeps the
            spectrum of WᵀQW and converges.
        gates: Number of networks that are summed, for the gated form.
        gate_size: Hidden units of each network.
        activation: f.
        matrix_method: Lie-group solver of W: lie-euler, lie-midpoint, cayley or rkmk4.
        matrix_steps: Its steps over depth, once for all samples; by default as many as a tenth of
            the samples' tolerance needs.
        solve: See `DepthOptions`.

    Example:
        >>> model = undamped.models.ODEtoODE(2, 2, hidden_size=16, form="isospectral")

    Reference:
        K. Choromanski and others. Ode to an ODE. NeurIPS, 2020.
    """

    promises = (
        *ContinuousModel.promises,
        Promise(Kind.BOUNDED_ADJOINT, "‖a(t)‖ is within exp(±(T − t)) of ‖a(T)‖"),
    )

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        form: Literal["gated", "isospectral"] = "gated",
        gates: PositiveInt = 4,
        gate_size: PositiveInt = 8,
        activation: OrthogonalActivation = "tanh",
        matrix_method: Literal["lie-euler", "lie-midpoint", "cayley", "rkmk4"] = "rkmk4",
        matrix_steps: PositiveInt | None = None,
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        if form == "gated":
            field = GatedOrthogonalField(
                hidden_size, activation=activation, gates=gates, gate_size=gate_size
            )
        else:
            for name, value in (("gates", gates), ("gate_size", gate_size)):
                if value != GATES[name]:
                    raise OptionError(
                        f"{name}={value} has no effect with form='{form}'. Set form='gated', or "
                        "leave it out."
                    )
            field = IsospectralOrthogonalField(hidden_size, activation=activation)
        sizes = input_size, hidden_size, output_size
        self._build(sizes, field, True, solve, DepthOptions, matrix_method, matrix_steps)

    def weights_at(self, times: Tensor) -> Tensor:
        """Return W(t), (times, n, n), at times (times,)."""
        assert self.shared is not None
        return self.shared.path().at(times.unsqueeze(1)).expand(len(times), -1, -1)

    def adjoint_exponents(self, times: Tensor) -> Tensor:
        """Return T − t at times t, (times,): the largest change of log‖a‖ from there to the end."""
        return self.end_of_depth - times
