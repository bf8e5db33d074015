"""Antisymmetric neural ODEs: a flow through a skew matrix, nonlinear and linear."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError, explain
from undamped._base.options import Default, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.moving import MovingModel
from undamped.models.continuous.options import DepthOptions
from undamped.ode.fields.antisymmetric import (
    AntisymmetricField,
    BoundedAntisymmetricField,
    IsospectralAntisymmetricField,
)
from undamped.ode.flows.shared_flow import AlongPath
from undamped.ode.settings import choose_solver

Motion = Literal["constant", "bounded", "isospectral"]
INVERTIBLE = ContinuousModel.promises
VOLUME = Promise(Kind.VOLUME_RATE, "the flow keeps volume: its determinant is one")
ADJOINT = Promise(
    Kind.BOUNDED_ADJOINT, "‖a(t)‖ is within exp(±½∫‖S‖) of ‖a(T)‖, the integral from t to T"
)
CONSERVED = Promise(Kind.CONSERVED, "Σ log cosh(S x + b) is conserved (constant)")
FORM = Promise(Kind.KEPT_FORM, "the flow's Jacobian M keeps MᵀSM = S (constant)")
BOUNDED = Promise(Kind.BOUNDED_PATH, "no entry of A or b moves further than ρt/√n (bounded)")
SPECTRUM = Promise(Kind.ISOSPECTRAL, "S(t) has the same eigenvalues at every depth (isospectral)")
ISOMETRIC = Promise(
    Kind.ISOMETRIC_FLOW, "norms of states and of gradients are kept exactly (Lie-group steps)"
)
BY_MOTION: dict[Motion, tuple[Promise, ...]] = {
    "constant": (CONSERVED, FORM),
    "bounded": (BOUNDED,),
    "isospectral": (SPECTRUM,),
}
LINEAR_BY_MOTION: dict[Motion, tuple[Promise, ...]] = {
    "constant": (),
    "bounded": (BOUNDED,),
    "isospectral": (SPECTRUM,),
}


class _Antisymmetric(MovingModel):
    """Builds the field of a motion."""

    motion: Motion

    def _build_motion(
        self,
        sizes: tuple[int, int, int],
        motion: Motion,
        rate: float,
        matrix_steps: int | None,
        solve: DepthOptions,
        group: type,
        linear: bool,
    ) -> None:
        if rate != 1.0 and motion != "bounded":
            raise OptionError(
                explain(
                    "rate",
                    expected="to be left out unless motion is 'bounded'",
                    got=f"{rate:g} beside motion='{motion}'",
                    remedy="Set motion='bounded', or leave it out.",
                )
            )
        if matrix_steps is not None and motion == "constant":
            raise OptionError(
                explain(
                    "matrix_steps",
                    expected="to be left out with motion='constant', which has nothing to solve",
                    got=matrix_steps,
                    remedy="Set motion='bounded' or 'isospectral', or leave it out.",
                )
            )
        size, self.motion = sizes[1], motion
        if motion == "bounded":
            field = BoundedAntisymmetricField(size, linear=linear, rate=rate)
        elif motion == "isospectral":
            field = IsospectralAntisymmetricField(size, linear=linear)
        else:
            field = AntisymmetricField(size, linear=linear)
        self._build(sizes, field, motion != "constant", solve, group, None, matrix_steps)

    def volume_rate(self, numbers: int) -> Tensor:
        """Return d log det/dt of the flow: a skew matrix has no trace.

        Args:
            numbers: Of the state.
        """
        return torch.zeros((), dtype=self.head.weight.dtype)

    def conserved(self, state: Tensor) -> Tensor:
        """Return Σ log cosh(S x + b), (batch,), which the flow of constant parameters keeps."""
        skew, bias = self.field.read(self.field.beginning(), *self.field.constants())
        size = (state @ skew.mT + bias).abs()
        # log cosh u = |u| + log(1 + exp(−2|u|)) − log 2, which does not overflow.
        return (size + torch.log1p(torch.exp(-2 * size)) - torch.log(2 * size.new_ones(()))).sum(-1)

    def kept_form(self) -> Tensor:
        """Return S, the form that the flow of constant parameters keeps."""
        return self.field.skew()

    def skew_at(self, times: Tensor) -> Tensor:
        """Return S(t), (times, n, n).

        Args:
            times: When, (times,).
        """
        if self.shared is None:
            return self.field.skew().expand(len(times), -1, -1)
        found = AlongPath(self.field, self.shared.path()).parameters_at(times.unsqueeze(1))[0]
        return found.expand(len(times), -1, -1)  # of a single time there is no row

    def path_at(self, times: Tensor) -> Tensor:
        """Return A and b side by side, (times, n, …), of parameters that move at a bounded rate."""
        assert self.shared is not None
        return self.shared.path().at(times.unsqueeze(1)).expand(len(times), -1, -1)

    def path_rate(self) -> float:
        """Return how fast any entry of A or b may change."""
        return self.field.rate / self.field.size**0.5

    def adjoint_exponents(self, times: Tensor) -> Tensor:
        """Return ½∫‖S‖ from each time to the end, (times,): how far log‖a‖ may have moved.

        Args:
            times: When, increasing, (times,).
        """
        if self.shared is None:
            return 0.5 * torch.linalg.matrix_norm(self.kept_form(), 2) * (self.end_of_depth - times)
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
        Jacobian eigenvalues are imaginary and volume is kept, for all motions; neither ‖x‖ nor
        ‖a‖ is, but d log‖a‖/dt is at most ‖S‖/2. With constant parameters Σ log cosh(S x + b) is
        conserved and the flow's Jacobian M keeps MᵀSM = S: a direction in which gradients vanish
        has a partner in which they grow. A(t) moves at a bounded rate, or keeps its spectrum.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Features of the state, into which a linear layer brings the input.
        motion: Whether A and b are constant, flow at a bounded rate, or are turned so that S keeps
            its spectrum.
        rate: ρ, for a bounded motion.
        matrix_steps: Steps in which A and b are solved over depth, once for all samples; none has
            as many as a tenth of the samples' tolerance asks for.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

    Example:
        >>> model = undamped.models.AntisymmetricNODE(2, 2, hidden_size=16, motion="isospectral")

    Reference:
        B. Chang, M. Chen, E. Haber, E. Chi. AntisymmetricRNN: a dynamical system view on
        recurrent neural networks. ICLR, 2019.
    """

    promises = (*INVERTIBLE, VOLUME, ADJOINT, CONSERVED, FORM, BOUNDED, SPECTRUM)

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        motion: Motion = "constant",
        rate: PositiveFloat = 1.0,
        matrix_steps: PositiveInt | None = None,
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        sizes = input_size, hidden_size, output_size
        self._build_motion(sizes, motion, rate, matrix_steps, solve, DepthOptions, False)
        self.promises = (*INVERTIBLE, VOLUME, ADJOINT, *BY_MOTION[motion])


class TurningOptions(DepthOptions, total=False):
    """How a flow that only turns is solved: as any, by rotations if nobody says otherwise."""

    method: Annotated[str, Default("magnus4", "Solver; Lie-group ones keep norms exactly.")]
    step_size: Annotated[
        PositiveFloat | None, Default(0.1, "Size of all steps; none for a tolerance.")
    ]


@models.register("linear-antisymmetric-node")
class LinearAntisymmetricNODE(_Antisymmetric):
    """The linear antisymmetric neural ODE: a rotation of the state, which keeps every norm.

    Equation:
        ẋ = S(t) x,  S = A − Aᵀ,  x(T) = Q x(0),  ŷ = W x(T) + c;  motions of A as in
        antisymmetric-node

    Symbols:
        x state, Q orthogonal, W and c readout.

    Promise:
        ‖x(t)‖ and ‖a(t)‖ are kept, by Lie-group methods (magnus4, cayley and others) to rounding,
        by others as far as they are exact. All the model can learn is therefore linear: it is what
        a gradient that keeps its norm everywhere costs.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Features of the state, into which a linear layer brings the input.
        motion: Whether A is constant, flows at a bounded rate, or is turned so that S keeps its
            spectrum.
        rate: ρ, for a bounded motion.
        matrix_steps: Steps in which A is solved over depth, once for all samples; none has as many
            as an error of 1e-6 asks for, or a tenth of the samples' tolerance.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`; magnus4 with
            steps of 0.1 if nothing else is said.

    Example:
        >>> model = undamped.models.LinearAntisymmetricNODE(2, 2, hidden_size=16, method="cayley")

    Reference:
        A. Iserles, S. Nørsett. On the solution of linear differential equations in Lie groups.
        Philosophical Transactions A 357 (1999).
    """

    turning = True
    promises = (*INVERTIBLE, VOLUME, ISOMETRIC, BOUNDED, SPECTRUM)

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        motion: Motion = "constant",
        rate: PositiveFloat = 1.0,
        matrix_steps: PositiveInt | None = None,
        **solve: Unpack[TurningOptions],
    ) -> None:
        super().__init__()
        sizes = input_size, hidden_size, output_size
        self._build_motion(sizes, motion, rate, matrix_steps, solve, TurningOptions, True)
        # Other methods keep norms only as far as they are exact.
        kept = (ISOMETRIC,) if choose_solver(self._ode.method).rotates else ()
        self.promises = (*INVERTIBLE, VOLUME, *kept, *LINEAR_BY_MOTION[motion])
