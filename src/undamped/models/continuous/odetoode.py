"""ODEtoODE: a neural ODE whose weights flow on the orthogonal group."""

from __future__ import annotations

from typing import Literal, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.moving import MovingModel
from undamped.models.continuous.options import DepthOptions
from undamped.ode.fields.orthogonal import (
    GatedOrthogonalField,
    IsospectralOrthogonalField,
    OrthogonalActivation,
)

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
        """Return W(t), (times, n, n).

        Args:
            times: Times, (times,).
        """
        assert self.shared is not None
        return self.shared.path().at(times.unsqueeze(1)).expand(len(times), -1, -1)

    def adjoint_exponents(self, times: Tensor) -> Tensor:
        """Return T − t, (times,): how far log‖a‖ may have moved from there to the end.

        Args:
            times: Times, (times,).
        """
        return self.end_of_depth - times
