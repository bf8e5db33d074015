"""UnICORNN (Rusch and Mishra, 2021): undamped independent oscillators, and deep residual stacks.

All layers run at once, chunk by chunk in time, in memory that does not grow. With one direction a
pass is one call of `undamped.kernels.oscillator_stack`: no sequence between two layers exists for
the whole length. With two directions a layer needs the whole sequence of the layer below before it
can start from the end, so layers run one after the other, and only the sequences between them are
stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import OptionError
from undamped._base.options import (
    Layers,
    NonNegativeFloat,
    Option,
    PositiveFloat,
    PositiveInt,
    Range,
    Units,
    convert,
    signature_options,
)
from undamped._base.promises import Kind, Promise
from undamped.kernels import (
    Gradient,
    Layer,
    OscillatorStream,
    PreparedStack,
    oscillator_scan,
    oscillator_stack,
)
from undamped.kernels.dispatch import implementation
from undamped.nn.bases.cell import Cell, ScanResult, State, States
from undamped.nn.bases.constant_cache import ModuleCache
from undamped.nn.recurrent import Recurrent, Stream
from undamped.nn.sequence_tensors import in_full_precision


class UnICORNNCell(Cell):
    """UnICORNN: independent undamped oscillators, with steps that preserve phase-space volume.

    Equation:
        z' = z − Δt σ̂(c) ⊙ [tanh(w ⊙ y + V u + b) + α y]
        y' = y + Δt σ̂(c) ⊙ z'

    Symbols:
        y position (the output), z velocity, u input of the layer, w recurrent weight per neuron, V
        input matrix, b bias, Δt largest step, c trained so that every neuron has its own effective
        step Δt σ̂(c), α restoring force.

    Promise:
        A step is a symplectic Euler step of a Hamiltonian system: it preserves volume in phase
        space and has an exact inverse. After n effective steps s from zero |z| ≤ n s/√(1 − αs²/4),
        and |y| is at most this bound/√α, if αs² < 4 (the bound √(2(1 + 2βt)) of the paper holds for
        short times only). Gradients of long-term dependencies do not decay with their distance.

    Args:
        hidden_size: Number of oscillators.
        dt: Largest time step Δt, one number or one for each layer. The paper uses values between
            2.8e-5 and 0.34, smaller ones for longer sequences.
        alpha: Restoring force α.
        train_step: Whether c is trained; if not, every effective step keeps its initial value.

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
        """Return the options of a layer, with its own Δt if there is a list of them."""
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
        """Return Δt σ̂(c), one number per neuron."""
        return self.dt * torch.sigmoid(self.step_logit)

    def constants(self) -> State:
        return (self.effective_step(),)

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.input_weight, self.bias)

    def force(self, projected: Tensor, position: Tensor) -> Tensor:
        """Return tanh(w ⊙ y + V u + b) + α y, the bracket of the equation."""
        return torch.tanh(self.weight * position + projected) + self.alpha * position

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Update the velocity from the old position, then the position from the new velocity."""
        position, velocity = state
        (step,) = constants
        velocity = velocity - step * self.force(projected, position)
        return position + step * velocity, velocity

    def inverse(self, projected: Tensor, state: State, constants: State) -> State:
        """Return the state before `advance`, by equation 7 of the paper."""
        position, velocity = state
        (step,) = constants
        position = position - step * velocity
        return position, velocity + step * self.force(projected, position)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
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

        The linear part of a step preserves the energy α y² + z² − α s y z, and tanh increases its
        root by at most s. The bound of the paper (C.1) holds for short times only.
        """
        s = float(self.effective_step().detach().max())
        margin = 1 - self.alpha * s**2 / 4
        if margin <= 0:  # the step is too long for the oscillator to be bounded
            return math.inf, math.inf
        velocity = steps * s / math.sqrt(margin)
        # A position is also a sum of steps, which is the better bound if there are few.
        summed = s**2 * steps * (steps + 1) / 2 / math.sqrt(margin)
        by_energy = velocity / math.sqrt(self.alpha) if self.alpha else math.inf
        return min(summed, by_energy), velocity


class ResidualUnICORNNCell(UnICORNNCell):
    """Residual UnICORNN: each layer also reads the output of an earlier layer.

    Equation:
        z' = z − Δt σ̂(c) ⊙ [tanh(w ⊙ y + x + b) + α y],  y' = y + Δt σ̂(c) ⊙ z'
        x = Λ y^(ℓ−S−1) + V y^(ℓ−1) for ℓ > S,  x = V y^(ℓ−1) otherwise

    Symbols:
        As in unicornn; ℓ counts layers from 1, y⁰ is the input of the network, S skipped layers, Λ
        the trained matrix of the skip connection.

    Promise:
        As unicornn in time. In depth the gradient scales like Δt^(2ν + 2L − 2νS − 1), not
        Δt^(2L − 1), so that many layers can be stacked.

    Args:
        input_size: Number of features of the input at each step; of all sources together.
        skip: Number S of skipped layers.

    Example:
        >>> net = undamped.nn.ResidualUnICORNN(6, 32, num_layers=6, skip=2)
        >>> output, state = net(torch.randn(1000, 4, 6))

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021. Appendix C.5.
    """

    independent_units = False  # a layer reads two earlier ones, a block only one

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        dt: PositiveFloat | Sequence[PositiveFloat] = 0.1,
        alpha: NonNegativeFloat = 1.0,
        train_step: bool = True,
        skip: Annotated[int, Range(low=2)] = 2,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, alpha=alpha, train_step=train_step)
        self.skip = skip

    @classmethod
    def sources(cls, layer: int, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the layer below, and the one S layers before it if there is one."""
        skip = options.get("skip", 2)
        return (layer - 1, layer - skip - 1) if layer > skip else (layer - 1,)

    def _draw_sources(self, sizes: tuple[int, ...]) -> None:
        """Draw V and Λ separately, as a sum of two maps and not as one wider map."""
        for block in self.input_weight.detach().split(sizes, dim=1):
            nn.init.kaiming_uniform_(block, a=8)


class OscillatorNetwork(Recurrent):
    """UnICORNN cells unrolled in time by the compiled kernels.

    Args:
        hidden_size: Number of oscillators of each layer.
        gradient: How the backward pass obtains the states: "reversible" computes them backwards in
            time from a few stored ones, "checkpoint" stores one per chunk, "stored" stores all.
        options: The other options of a recurrent network and of the cell.
    """

    oscillates = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        num_layers: Layers = 1,
        *,
        gradient: Gradient = "reversible",
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self._prepared: ModuleCache[PreparedStack] = ModuleCache()
        self.gradient: Gradient = convert(Gradient, gradient, f"{type(self).__name__}.gradient")
        if self.block != "none" and self.gradient != "reversible":
            raise OptionError(
                f"{type(self).__name__}.gradient cannot be '{self.gradient}' with a block, which "
                "recomputes every chunk. Leave out one of the two."
            )

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of any recurrent network, of the cell, and `gradient`."""
        gradient = signature_options(OscillatorNetwork)["gradient"]
        return {**super().declared_options(), "gradient": gradient}

    def _run(
        self, x: Tensor, states: States, lengths: Tensor | None, *, every: bool = True
    ) -> tuple[Tensor, States]:
        if self.bidirectional or not self._fits(x, states):
            return super()._run(x, states, lengths, every=every)
        masks = None
        if self.dropout and self.training and self.num_layers > 1:
            masks = torch.cat([mask for mask, *_ in self._draw_masks(x)[:-1]])
        output, (position, velocity) = oscillator_stack(
            x,
            self._layers(),
            _stacked(states),
            lengths=lengths,
            masks=masks,
            gradient=self.gradient,
            every=every,
        )
        output = x.new_empty(0) if output is None else output
        return output, list(zip(position.unbind(0), velocity.unbind(0), strict=True))

    def _scan(
        self, at: int, x: Tensor, state: State, lengths: Tensor | None, masks: State, needed: bool
    ) -> ScanResult:
        if not self._fits(x, [state]):
            return super()._scan(at, x, state, lengths, masks, needed)
        output, (position, velocity) = oscillator_stack(
            x,
            [self._layer(*divmod(at, self.directions), input_size=x.shape[-1])],
            _stacked([state]),
            lengths=lengths,
            gradient=self.gradient,
            every=needed,
        )
        # An empty sequence stands for outputs that are not needed.
        output = x.new_empty(0, x.shape[1], self.hidden_size) if output is None else output
        return output, (position[0], velocity[0])

    @in_full_precision
    def step(self, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
        """Process one sample (batch, input) or (input,) of a stream; return output and state.

        The results are bitwise those of a whole sequence. In a long loop without gradients `stream`
        is faster, since it computes constants once.
        """
        if self.bidirectional or isinstance(x, PackedSequence) or x.dim() not in (1, 2):
            return super().step(x, state)  # which raises the error
        if self.block != "none":
            return super().step(x, state)
        sequence, inner, unbatched = self._check_input(x.unsqueeze(0), state, stream=True)
        batch = sequence.shape[1]
        if inner is None:
            zeros = sequence.new_zeros(self.num_layers, batch, self.hidden_size)
            start = (zeros, zeros)
        else:
            start = self._state_parts(inner, batch, sequence.dtype)
        if implementation(sequence, self._weight(), *start) != "numba":
            return super().step(x, state)
        position, velocity = start
        if torch.is_grad_enabled():
            _, final = oscillator_stack(
                sequence, self._layers(), (position, velocity), gradient="stored", every=False
            )
        else:
            final = self._steady_stack().advance(sequence[0], position, velocity)
        output = final[0][-1].clone()  # so that changes in place do not affect the state
        if unbatched:
            return output.squeeze(0), (final[0].squeeze(1), final[1].squeeze(1))
        return output, final

    def _steady_stack(self) -> PreparedStack:
        """Return the layers prepared for steps, cached as long as no byte of them changes."""
        return self._prepared.get(
            self, lambda: PreparedStack([self._layer(at) for at in range(self.num_layers)])
        )

    def _make_stream(self, states: States) -> Stream | OscillatorStream:
        if self.block != "none" or implementation(*self.parameters()) != "numba":
            return super()._make_stream(states)
        return OscillatorStream(self._layers(), *_stacked(states))

    def _fits(self, x: Tensor, states: States) -> bool:
        """Return whether `oscillator_stack` can run; otherwise layers run in `cell.scan`.

        A compiler traces one operator per layer instead, since the loop over chunks is Python.
        """
        if self.block != "none":
            return False
        tensors = (x, self._weight(), *states[0])
        return implementation(*tensors, gpu=True) in ("numba", "triton")

    def _weight(self) -> Tensor:
        return cast(UnICORNNCell, self.cell(0)).weight

    def _layers(self) -> list[Layer]:
        return [self._layer(at) for at in range(self.num_layers)]

    def _layer(self, at: int, direction: int = 0, input_size: int = 0) -> Layer:
        """Return a layer as the kernels need it; with `input_size`, it reads one joined input."""
        cell = cast(UnICORNNCell, self.cell(at, direction))
        sources = (0,) if input_size else self.layer_sources(at + 1)
        widths = (self.input_size, *[self.hidden_size] * self.num_layers)
        sizes = (input_size,) if input_size else tuple(widths[source] for source in sources)
        step = cell.effective_step()
        return Layer(cell.input_weight, cell.bias, cell.weight, step, cell.alpha, sources, sizes)


def _stacked(states: States) -> tuple[Tensor, Tensor]:
    position, velocity = (torch.stack(parts) for parts in zip(*states, strict=True))
    return position, velocity


class UnICORNN(OscillatorNetwork, cell=UnICORNNCell, name="unicornn"): ...


class ResidualUnICORNN(OscillatorNetwork, cell=ResidualUnICORNNCell, name="residual-unicornn"): ...
