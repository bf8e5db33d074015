"""LinOSS (Rusch and Rus, 2025) and D-LinOSS (Boyer, Rusch and Rus, 2025): linear oscillators."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.linear.block import BlockWeights, oscillator_block, uses_tiles
from undamped.kernels.linear.oscillator import linear_oscillator_scan
from undamped.nn.bases.cell import BlockScan, ScanResult, State
from undamped.nn.bases.state_space import StateSpaceCell
from undamped.nn.recurrent import Recurrent

Method = Literal["im", "imex"]


class LinearOscillators(StateSpaceCell):
    """Linear oscillators: z' = a z − k x + f B u, x' = x + Δ z', y = C x + D u.

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
        # Real parts above imaginary ones; those of C have the sign of the real part of C x.
        bound = input_size**-0.5
        self.input_weight = nn.Parameter(
            torch.empty(2 * oscillators, input_size).uniform_(-bound, bound)
        )
        bound = oscillators**-0.5
        self.output_weight = nn.Parameter(
            torch.empty(hidden_size, 2 * oscillators).uniform_(-bound, bound)
        )

    def step_size(self) -> Tensor:
        """Return Δ of each complex oscillator."""
        return torch.sigmoid(self.step_logit)

    @abstractmethod
    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Return a (None if it is one), k, f and Δ of each complex oscillator."""

    def _of_both_parts(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        decay, *rest = self.coefficients()
        stiffness, gain, step = (part.repeat(2) for part in rest)
        return None if decay is None else decay.repeat(2), stiffness, gain, step

    def constants(self) -> State:
        """Return a, k, f and Δ."""
        decay, *rest = self._of_both_parts()
        return torch.ones_like(rest[0]) if decay is None else decay, *rest

    def move(self, drive: Tensor, units: State, constants: State) -> State:
        """Update the velocity from the old position, then the position from the new velocity."""
        position, velocity = units
        decay, stiffness, gain, step = constants
        velocity = decay * velocity + (gain * drive - stiffness * position)
        return position + step * velocity, velocity

    def move_along(self, drive: Tensor, units: State, lengths: Tensor | None) -> ScanResult:
        """Make all steps in one compiled loop."""
        position, velocity = units
        return linear_oscillator_scan(drive, *self._of_both_parts(), (position, velocity), lengths)

    def _block_scan(self, steps: int, batch: int) -> BlockScan | None:
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
    ) -> ScanResult | None:
        """Scan the whole block in one compiled pass; None if the kernel cannot take the tensors."""
        position, velocity = state[2:]
        matrices = (self.drive_weight(), self.output_weight, self.pass_weight)
        coefficients = torch.stack(self.constants())
        weights = BlockWeights(coefficients, *matrices, gate.weight, gate.bias, masks)
        result = oscillator_block(e, weights, position, velocity, lengths, epsilon)
        if result is None:
            return None
        ends = [result.last, result.readout]
        if lengths is not None:  # the state of an empty sequence does not change
            nonempty = (lengths > 0).unsqueeze(-1)
            ends = [torch.where(nonempty, new, old) for new, old in zip(ends, state, strict=False)]
        return result.output, (*ends, result.position, result.velocity)

    @abstractmethod
    def free_parameters(self) -> list[nn.Parameter]:
        """Return the parameters on which the eigenvalues depend."""

    def recurrent_matrix(self) -> Tensor:
        """Return the matrix of a step on positions and velocities (x | z)."""
        decay, stiffness, _, step = (torch.diag(part) for part in self.constants())
        eye = torch.eye(self.visible_size, dtype=decay.dtype, device=decay.device)
        positions = torch.cat([eye - step @ stiffness, step @ decay], 1)
        return torch.cat([positions, torch.cat([-stiffness, decay], 1)])


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

        The layer is linear. In the papers it is inside a block of normalisation, gelu, gated linear
        unit and residual connection: block="batch-norm", or "layer-norm", which allows streaming.

    Promise:
        |λ|² = 1 / (1 + Δ² A) for im, at most one and less for fast oscillators. |λ| = 1 for imex if
        Δ² A ≤ 4: it forgets nothing, and its gradient is computed backwards in time.

    Args:
        oscillators: Number of complex oscillators; 0 for as many as the output has features.
        method: How the equation is integrated: implicitly (im), or positions and velocities in turn
            (imex).

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
        super().__init__(input_size, hidden_size, oscillators or hidden_size)
        self.method: Method = method
        self.frequency = nn.Parameter(torch.rand(self.oscillators))
        self.step_logit = nn.Parameter(torch.rand(self.oscillators))

    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Return S, S Δ A, S Δ and Δ; S is one for imex."""
        step, squared = self.step_size(), torch.relu(self.frequency)
        if self.method == "imex":
            return None, step * squared, step, step
        decay = 1 / (1 + step**2 * squared)
        return decay, decay * step * squared, decay * step, step

    def free_parameters(self) -> list[nn.Parameter]:
        return [self.frequency, self.step_logit]

    def spectrum(self) -> Tensor:
        """Return the moduli of all eigenvalues, 4 for each complex oscillator."""
        angle = self.step_size() ** 2 * torch.relu(self.frequency)
        if self.method == "im":
            return (1 / (1 + angle)).sqrt().repeat(4)
        # λ² − (2 − Δ²A) λ + 1 = 0: a pair on the circle, or two real numbers beyond Δ²A = 4.
        half = 1 - angle / 2
        root = (half**2 - 1).clamp(min=0).sqrt()
        larger = torch.where(angle <= 4, torch.ones_like(half), half.abs() + root)
        return torch.cat([larger, 1 / larger]).repeat(2)


class DLinOSSCell(LinearOscillators):
    """D-LinOSS: linear oscillators, each with a learned damping.

    Equation:
        z' = (z + Δ (−A x + B u)) / (1 + Δ G),  x' = x + Δ z',  y = Re(C x) + D u
        A is kept between (2 + ΔG ∓ 2 √(1 + ΔG)) / Δ²

    Symbols:
        As in linoss; G = relu(Ĝ) dampings. Within its limits A makes every unit oscillate. Initial
        eigenvalues are uniform in a ring of the upper half plane, by G = (r⁻² − 1)/Δ and
        A = (1 + r² − 2 r cos θ)/(Δ² r²).

        The layer is linear; see linoss for the block around it.

    Promise:
        |λ|² = 1 / (1 + Δ G), at most one for any weights.

    Args:
        oscillators: Number of complex oscillators; 0 for as many as the output has features.
        smallest: The smallest initial modulus |λ|.
        largest: The largest initial modulus |λ|.

    Example:
        >>> net = undamped.nn.DLinOSS(6, 16, num_layers=2, oscillators=8)
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        J. Boyer, T. K. Rusch, D. Rus. Learning to dissipate energy in oscillatory state-space
        models. arXiv:2505.12171, 2025.
    """

    promises = (Promise(Kind.SCALED_SPECTRUM, "|λ|² = 1/(1 + ΔG) ≤ 1"),)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        oscillators: NonNegativeInt = 0,
        smallest: Fraction = 0.9,
        largest: Fraction = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size, oscillators or hidden_size)
        if not 0 < smallest <= largest:
            raise OptionError(
                f"smallest must be > 0 and at most largest={largest:g}, got {smallest}."
            )
        self.step_logit = nn.Parameter(0.5 * torch.randn(self.oscillators))
        squares = torch.empty(self.oscillators).uniform_(smallest**2, largest**2)
        cosines = torch.empty(self.oscillators).uniform_(0, math.pi).cos()
        step = self.step_size().detach()
        self.damping = nn.Parameter((1 / squares - 1) / step)
        self.frequency = nn.Parameter(
            (1 + squares - 2 * squares.sqrt() * cosines) / (step**2 * squares)
        )

    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Return 1, Δ A and Δ, all divided by 1 + Δ G, and Δ."""
        step = self.step_size()
        damped = 1 + step * torch.relu(self.damping)
        middle, reach = 1 + damped, 2 * damped.sqrt()
        squared = torch.clamp(
            self.frequency, (middle - reach) / step**2, (middle + reach) / step**2
        )
        return 1 / damped, step * squared / damped, step / damped, step

    def free_parameters(self) -> list[nn.Parameter]:
        return [self.frequency, self.damping, self.step_logit]

    def spectrum(self) -> Tensor:
        """Return the moduli of all eigenvalues, 4 for each complex oscillator."""
        damped = 1 + self.step_size() * torch.relu(self.damping)
        return (1 / damped).sqrt().repeat(4)


class LinOSS(Recurrent, cell=LinOSSCell, name="linoss"): ...


class DLinOSS(Recurrent, cell=DLinOSSCell, name="d-linoss"): ...
