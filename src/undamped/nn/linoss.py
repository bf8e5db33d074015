"""LinOSS (Rusch and Rus, 2025): linear oscillators between two matrices."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.linear.block import BlockWeights, oscillator_block, uses_tiles
from undamped.kernels.linear.oscillator import linear_oscillator_scan
from undamped.nn.bases.cell import BlockScan, State
from undamped.nn.bases.state_space import StateSpaceCell, width_or
from undamped.nn.recurrent import Recurrent

Method = Literal["im", "imex"]


class LinearOscillators(StateSpaceCell):
    """What LinOSS and D-LinOSS share: z' = a z − k x + f B u, x' = x + Δ z', y = C x + D u.

    The matrices B and C of the papers are complex; a complex oscillator is two real ones with the
    same frequency, and the real part of C x is a real matrix times their positions.

    Args:
        oscillators: The number P of complex oscillators.
    """

    state_names = ("output", "position", "velocity")
    step_logit: nn.Parameter  # (oscillators,)

    def __init__(self, input_size: int, hidden_size: int, oscillators: int) -> None:
        super().__init__(input_size, hidden_size, 2 * oscillators)
        self.oscillators = oscillators
        # Real parts above imaginary ones; of C, with the sign that the real part of C x has.
        bound = input_size**-0.5
        self.input_weight = nn.Parameter(
            torch.empty(2 * oscillators, input_size).uniform_(-bound, bound)
        )
        bound = oscillators**-0.5
        self.output_weight = nn.Parameter(
            torch.empty(hidden_size, 2 * oscillators).uniform_(-bound, bound)
        )

    def step_size(self) -> Tensor:
        """Δ of each complex oscillator."""
        return torch.sigmoid(self.step_logit)

    @abstractmethod
    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """a (None where it is one), k, f and Δ of each complex oscillator."""

    def _of_both_parts(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        keep, *rest = self.coefficients()
        stiffness, gain, step = (part.repeat(2) for part in rest)
        return None if keep is None else keep.repeat(2), stiffness, gain, step

    def constants(self) -> State:
        """a, k, f and Δ."""
        keep, stiffness, gain, step = self._of_both_parts()
        return torch.ones_like(stiffness) if keep is None else keep, stiffness, gain, step

    def move(self, drive: Tensor, units: State, constants: State) -> State:
        """Kick the velocity with the old position, then move the position with the new velocity."""
        position, velocity = units
        keep, stiffness, gain, step = constants
        velocity = keep * velocity + (gain * drive - stiffness * position)
        return position + step * velocity, velocity

    def move_along(
        self, drive: Tensor, units: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        """All steps in one compiled loop."""
        position, velocity = units
        return linear_oscillator_scan(drive, *self._of_both_parts(), (position, velocity), lengths)

    def block_scan(self, steps: int, batch: int) -> BlockScan | None:
        """Return the compiled pass if every thread gets sequences and D is diagonal."""
        numbers = steps * batch * self.hidden_size
        tiled = self.pass_weight.dim() == 1 and uses_tiles(numbers, batch)
        return self._scan_block if tiled else None

    def _scan_block(
        self,
        e: Tensor,
        state: State,
        lengths: Tensor | None,
        gate: nn.Linear,
        masks: State,
        epsilon: float,
    ) -> tuple[Tensor, State] | None:
        """Scan the whole block in one compiled pass; None if the kernel cannot take the tensors."""
        position, velocity = state[2:]
        keep, *rest = self._of_both_parts()
        coefficients = torch.stack([torch.ones_like(rest[0]) if keep is None else keep, *rest])
        learnt = (self.drive_weight(), self.output_weight, self.pass_weight)
        weights = BlockWeights(coefficients, *learnt, gate.weight, gate.bias, masks)
        result = oscillator_block(e, weights, position, velocity, lengths, epsilon)
        if result is None:
            return None
        ends = [result.last, result.readout]
        if lengths is not None:  # of what is over before it begins the state stays
            begun = (lengths > 0).unsqueeze(-1)
            ends = [torch.where(begun, new, old) for new, old in zip(ends, state, strict=False)]
        return result.output, (*ends, result.position, result.velocity)

    @abstractmethod
    def free_parameters(self) -> list[nn.Parameter]:
        """What the eigenvalues depend on."""

    def recurrent_matrix(self) -> Tensor:
        """The matrix of a step on positions and velocities (x | z)."""
        keep, stiffness, _, step = (torch.diag(part) for part in self.constants())
        eye = torch.eye(self.visible_size, dtype=keep.dtype, device=keep.device)
        return torch.cat(
            [torch.cat([eye - step @ stiffness, step @ keep], 1), torch.cat([-stiffness, keep], 1)]
        )


class LinOSSCell(LinearOscillators):
    """LinOSS: a layer of linear, forced oscillators, with one frequency and one step each.

    Equation:
        im: z' = S (z − Δ A x + Δ B u), x' = x + Δ z', S = 1 / (1 + Δ² A)
        imex: z' = z + Δ (−A x + B u), x' = x + Δ z'
        y = Re(C x) + D u

    Symbols:
        x positions and z velocities, complex; u input, y output, A = relu(Â) squared frequencies,
        Δ = σ̂(δ) steps, one of each for an oscillator, B and C complex matrices, D a factor for
        every feature, or a matrix where input and output differ in size.

        The layer is linear. The papers put normalisation, a gelu, a gated linear unit and a sum
        with the input around it: block="batch-norm", or "layer-norm", which streams.

    Promise:
        |λ|² = 1 / (1 + Δ² A) for im, at most one and less for fast oscillators; |λ| = 1 for imex
        while Δ² A ≤ 4, so it forgets nothing, and its gradient is found backwards in time.

    Args:
        oscillators: Number of complex oscillators; 0 for as many as the output has features.
        method: How the equation is integrated, implicitly (im) or by turns (imex).

    Example:
        >>> net = undamped.nn.LinOSS(6, 16, num_layers=2, oscillators=8)
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        T. K. Rusch, D. Rus. Oscillatory state-space models. ICLR, 2025.
    """

    promises = (Promise(Kind.SCALED_SPECTRUM, "|λ|² = 1/(1 + Δ²A) for im, 1 for imex (Δ²A ≤ 4)"),)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        oscillators: NonNegativeInt = 0,
        method: Method = "im",
    ) -> None:
        super().__init__(input_size, hidden_size, width_or(oscillators, hidden_size))
        self.method: Method = method
        self.frequency = nn.Parameter(torch.rand(self.oscillators))
        self.step_logit = nn.Parameter(torch.rand(self.oscillators))

    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """S, S Δ A, S Δ and Δ; S is one for imex."""
        step, squared = self.step_size(), torch.relu(self.frequency)
        if self.method == "imex":
            return None, step * squared, step, step
        keep = 1 / (1 + step**2 * squared)
        return keep, keep * step * squared, keep * step, step

    def free_parameters(self) -> list[nn.Parameter]:
        """Â and δ."""
        return [self.frequency, self.step_logit]

    def spectrum(self) -> Tensor:
        """The moduli of all eigenvalues, 4 for each complex oscillator."""
        angle = self.step_size() ** 2 * torch.relu(self.frequency)
        if self.method == "im":
            return (1 / (1 + angle)).sqrt().repeat(4)
        # λ² − (2 − Δ²A) λ + 1 = 0: a pair on the circle, or two real numbers beyond Δ²A = 4.
        half = 1 - angle / 2
        root = (half**2 - 1).clamp(min=0).sqrt()
        larger = torch.where(angle <= 4, torch.ones_like(half), half.abs() + root)
        return torch.cat([larger, 1 / larger]).repeat(2)


@models.register("linoss")
class LinOSS(Recurrent):
    """Stacked layers of `LinOSSCell`, which has the equation and the options."""

    cell_class = LinOSSCell
