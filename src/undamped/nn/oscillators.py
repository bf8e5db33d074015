"""UnICORNN networks: all layers at once, chunk by chunk in time, in memory that does not grow.

With one direction a pass is one call of `undamped.kernels.oscillator_stack`: no sequence between
two layers exists for the whole length. With two directions a layer needs the whole sequence of the
layer below before it can start from the end, so layers run one after the other, and only the
sequences between them are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import OptionError
from undamped._base.options import (
    Layers,
    Option,
    PositiveInt,
    Units,
    convert,
    signature_options,
)
from undamped.kernels import Gradient, Layer, OscillatorStream, PreparedStack, oscillator_stack
from undamped.kernels.dispatch import implementation
from undamped.nn.bases.cell import ScanResult, State, States
from undamped.nn.bases.constant_cache import ModuleCache
from undamped.nn.call_checks import in_full_precision
from undamped.nn.recurrent import Recurrent
from undamped.nn.stream import Stream

if TYPE_CHECKING:
    from undamped.nn.unicornn import UnICORNNCell


class OscillatorNetwork(Recurrent):
    """UnICORNN cells unrolled in time by the compiled kernels.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of oscillators of each layer.
        num_layers: Number of layers.
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
        return cast("UnICORNNCell", self.cell(0)).weight

    def _layers(self) -> list[Layer]:
        return [self._layer(at) for at in range(self.num_layers)]

    def _layer(self, at: int, direction: int = 0, input_size: int = 0) -> Layer:
        """Return a layer as the kernels need it; with `input_size`, it reads one joined input."""
        cell = cast("UnICORNNCell", self.cell(at, direction))
        sources = (0,) if input_size else self.layer_sources(at + 1)
        widths = (self.input_size, *[self.hidden_size] * self.num_layers)
        sizes = (input_size,) if input_size else tuple(widths[source] for source in sources)
        step = cell.effective_step()
        return Layer(cell.input_weight, cell.bias, cell.weight, step, cell.alpha, sources, sizes)


def _stacked(states: States) -> tuple[Tensor, Tensor]:
    position, velocity = (torch.stack(parts) for parts in zip(*states, strict=True))
    return position, velocity
