"""UnICORNN (Rusch and Mishra, 2021): undamped, independent, controlled oscillators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels import oscillator_scan
from undamped.nn.bases.cell import Cell, State
from undamped.nn.oscillators import OscillatorNetwork


class UnICORNNCell(Cell):
    """UnICORNN: independent undamped oscillators, stepped so that phase volume is kept.

    Equation:
        z' = z − Δt σ̂(c) ⊙ [tanh(w ⊙ y + V u + b) + α y]
        y' = y + Δt σ̂(c) ⊙ z'

    Symbols:
        y position (the output), z velocity, u input of the layer, w recurrent weight per
        neuron, V input matrix, b bias, Δt largest step, c learned so that the effective step
        Δt σ̂(c) differs from neuron to neuron, α restoring force.

    Promise:
        A symplectic Euler step of a Hamiltonian system: volume in phase space is kept and every
        step can be undone exactly. After n effective steps s from zero |z| ≤ n s/√(1 − αs²/4)
        and |y| ≤ |z|'s bound/√α, if αs² < 4 (the paper's √(2(1 + 2βt)) holds for short times
        only), and the gradient of long-term dependencies does not decay with their distance.

    Args:
        hidden_size: Number of oscillators.
        dt: Largest time step Δt, one number or one for each layer. The paper's values lie
            between 2.8e-5 and 0.34; longer sequences want smaller ones.
        alpha: Restoring force α.
        train_step: Whether c is trained; if not, every effective step stays where it was drawn.

    Example:
        >>> net = undamped.nn.UnICORNN(6, 32, num_layers=2, dt=0.1, alpha=1.0)
        >>> output, (position, velocity) = net(torch.randn(1000, 4, 6))

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021.
    """

    promises = (
        Promise(Kind.INVERTIBLE, "every step can be undone (eq. 7)"),
        Promise(Kind.VOLUME_PRESERVING, "a step keeps phase-space volume"),
        Promise(Kind.SYMPLECTIC, "a step is symplectic in each neuron's (y, z)"),
        Promise(Kind.BOUNDED_STATE, "|z| ≤ n s/√(1 − αs²/4) and |y| ≤ that/√α after n steps s"),
    )
    state_names = ("position", "velocity")
    independent_units = True
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        dt: PositiveFloat | Sequence[PositiveFloat] = 0.1,
        alpha: NonNegativeFloat = 1.0,
        train_step: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if not isinstance(dt, float | int):
            raise OptionError(f"dt of a single layer must be a number, got {dt}.")
        self.dt = float(dt)
        self.alpha = float(alpha)
        self.weight = nn.Parameter(torch.rand(hidden_size))
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        self.step_logit = nn.Parameter(
            torch.empty(hidden_size).uniform_(-0.1, 0.1), requires_grad=train_step
        )
        nn.init.kaiming_uniform_(self.input_weight, a=8)

    @classmethod
    def layer_options(cls, options: Mapping[str, Any], layer: int, layers: int) -> dict[str, Any]:
        """Give each layer its own Δt where a list was given."""
        changed = dict(options)
        dt = changed.get("dt")
        if isinstance(dt, Sequence):
            if len(dt) != layers:
                raise OptionError(
                    f"dt must be one number or one per layer, got {len(dt)} numbers for {layers} "
                    "layers."
                )
            changed["dt"] = dt[layer - 1]
        return changed

    def effective_step(self) -> Tensor:
        """Δt σ̂(c), one number per neuron."""
        return self.dt * torch.sigmoid(self.step_logit)

    def constants(self) -> State:
        """The effective step."""
        return (self.effective_step(),)

    def project(self, x: Tensor) -> Tensor:
        """V u + b."""
        return F.linear(x, self.input_weight, self.bias)

    def force(self, projected: Tensor, position: Tensor) -> Tensor:
        """tanh(w ⊙ y + V u + b) + α y, the bracket of the equation."""
        return torch.tanh(self.weight * position + projected) + self.alpha * position

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Kick the velocity with the old position, then move the position with the new velocity."""
        position, velocity = state
        (step,) = constants
        velocity = velocity - step * self.force(projected, position)
        return position + step * velocity, velocity

    def inverse(self, projected: Tensor, state: State, constants: State) -> State:
        """Undo `advance`: equation 7 of the paper."""
        position, velocity = state
        (step,) = constants
        position = position - step * velocity
        return position, velocity + step * self.force(projected, position)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Scan in one compiled loop."""
        position, velocity = state
        return oscillator_scan(
            self.project(x),
            self.weight,
            self.effective_step(),
            self.alpha,
            (position, velocity),
            lengths,
        )

    def state_bound(self, steps: int) -> tuple[float, float]:
        """Return bounds on |y| and |z| after `steps` steps from a zero state, for any input.

        The energy α y² + z² − α s y z is kept by the linear part of a step, and tanh raises its
        root by at most s. The paper's bound (C.1) holds for short times only.
        """
        s = float(self.effective_step().detach().max())
        margin = 1 - self.alpha * s**2 / 4
        if margin <= 0:  # the step is too long for the oscillator: nothing bounds it
            return math.inf, math.inf
        velocity = steps * s / math.sqrt(margin)
        # A position is also a sum of steps, which is the better bound while there are few.
        summed = s**2 * steps * (steps + 1) / 2 / math.sqrt(margin)
        swinging = velocity / math.sqrt(self.alpha) if self.alpha else math.inf
        return min(summed, swinging), velocity


@models.register("unicornn")
class UnICORNN(OscillatorNetwork):
    """Stacked layers of `UnICORNNCell`, which has the equation and the options."""

    cell_class = UnICORNNCell
