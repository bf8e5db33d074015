"""UnICORNN networks: all layers at once, chunk by chunk in time, in memory that does not grow.

With one direction a whole pass is a single function (`undamped.kernels.oscillator_stack`): no
sequence between two layers ever exists for the whole length. With two directions a layer needs
all of the sequence below it before it can start from the end, so layers run one after the other,
each in the same way, and the outputs between them are the only sequences kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from undamped._base.docstrings import documented_arguments
from undamped._base.errors import OptionError
from undamped._base.options import Layers, Option, PositiveInt, Units, convert
from undamped.kernels import Gradient, Layer, OscillatorStream, PreparedStack, oscillator_stack
from undamped.kernels.dispatch import implementation
from undamped.nn.bases.cell import State
from undamped.nn.bases.constant_cache import ModuleCache
from undamped.nn.call_checks import in_full_precision
from undamped.nn.recurrent import Recurrent
from undamped.nn.sequence_tensors import join_features, padding_mask, reverse_time
from undamped.nn.stream import Stream

if TYPE_CHECKING:
    from undamped.nn.unicornn import UnICORNNCell


class OscillatorNetwork(Recurrent):
    """UnICORNN cells unrolled in time by the compiled kernels.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of oscillators of each layer.
        num_layers: Number of layers.
        gradient: How the backward pass gets its states: "reversible" runs backwards in time
            from a few kept states, "checkpoint" keeps one every chunk, "stored" keeps all.
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
                "runs "
                "every chunk again. Leave out one of the two."
            )

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of any recurrent network, of the cell, and `gradient`."""
        text = documented_arguments(OscillatorNetwork)["gradient"]
        gradient = Option("gradient", Gradient, "reversible", text)
        return {**super().declared_options(), "gradient": gradient}

    def _run(
        self, x: Tensor, states: list[State], lengths: Tensor | None
    ) -> tuple[Tensor, list[State]]:
        if not self._fits(x, states):
            return super()._run(x, states, lengths)
        output, finals = self._run_kernels(x, states, lengths, every=True)
        assert output is not None  # every output was asked for
        return output, finals

    def _run_to_end(self, x: Tensor, states: list[State], lengths: Tensor | None) -> list[State]:
        if not self._fits(x, states):
            return super()._run_to_end(x, states, lengths)
        return self._run_kernels(x, states, lengths, every=False)[1]

    @in_full_precision
    def step(self, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
        """Take one sample (batch, input) or (input,) of a stream; return output and state.

        The bits are those of a whole sequence. In a long loop without gradients `stream` is
        faster: it keeps the state and prepares everything once.
        """
        if self.bidirectional or isinstance(x, PackedSequence) or x.dim() not in (1, 2):
            return super().step(x, state)  # which says what is wrong
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
            layers = [self._layer(at) for at in range(self.num_layers)]
            _, final = oscillator_stack(
                sequence, layers, (position, velocity), gradient="stored", every=False
            )
        else:
            final = self._steady_stack().advance(sequence[0], position, velocity)
        output = final[0][-1].clone()  # which may be changed in place, the state not
        if unbatched:
            return output.squeeze(0), (final[0].squeeze(1), final[1].squeeze(1))
        return output, final

    def _steady_stack(self) -> PreparedStack:
        """Return the layers prepared for steps, remembered while no byte of the network changes."""
        return self._prepared.get(
            self, lambda: PreparedStack([self._layer(at) for at in range(self.num_layers)])
        )

    def _make_stream(self, states: list[State]) -> Stream | OscillatorStream:
        if self.block != "none" or implementation(*self.parameters()) != "numba":
            return super()._make_stream(states)
        layers = [self._layer(at) for at in range(self.num_layers)]
        return OscillatorStream(layers, *_stacked(states))

    def _fits(self, x: Tensor, states: list[State]) -> bool:
        """Whether the chunked pass applies; if not, layers run one by one over `cell.scan`.

        A compiler sees one operator per layer instead: the chunks are Python.
        """
        if self.block != "none":
            return False
        tensors = (x, self._weight(), *states[0])
        return implementation(*tensors, gpu=True) in ("numba", "triton")

    def _weight(self) -> Tensor:
        return cast("UnICORNNCell", self.cell(0)).weight

    def _run_kernels(
        self, x: Tensor, states: list[State], lengths: Tensor | None, *, every: bool
    ) -> tuple[Tensor | None, list[State]]:
        if self.bidirectional:
            return self._run_both_ways(x, states, lengths, every=every)
        layers = [self._layer(at) for at in range(self.num_layers)]
        masks = None
        if self.dropout and self.training and self.num_layers > 1:
            like = x.new_empty(1, x.shape[1], self.hidden_size)
            masks = torch.cat([self._dropout_mask(like) for _ in layers[1:]])
        output, (position, velocity) = oscillator_stack(
            x,
            layers,
            _stacked(states),
            lengths=lengths,
            masks=masks,
            gradient=self.gradient,
            every=every,
        )
        return output, list(zip(position.unbind(0), velocity.unbind(0), strict=True))

    def _run_both_ways(
        self, x: Tensor, states: list[State], lengths: Tensor | None, *, every: bool
    ) -> tuple[Tensor | None, list[State]]:
        if lengths is not None:
            x = x.masked_fill(padding_mask(x, lengths), 0)
        outputs: list[Tensor] = [x]
        finals: list[State] = []
        for at in range(self.num_layers):
            source = join_features([outputs[i] for i in self.layer_sources(at + 1)])
            top = at == self.num_layers - 1
            both = []
            for direction in range(self.directions):
                directed = reverse_time(source, lengths) if direction else source
                output, (position, velocity) = oscillator_stack(
                    directed,
                    [self._layer(at, direction, input_size=source.shape[-1])],
                    _stacked([states[at * self.directions + direction]]),
                    lengths=lengths,
                    gradient=self.gradient,
                    every=every or not top,
                )
                finals.append((position[0], velocity[0]))
                if output is not None:
                    both.append(reverse_time(output, lengths) if direction else output)
            if top and not every:
                return None, finals
            output = join_features(both)
            if self.dropout and self.training and not top:
                output = output * self._dropout_mask(output)
            outputs.append(output)
        return outputs[-1], finals

    def _layer(self, at: int, direction: int = 0, input_size: int = 0) -> Layer:
        """Describe a layer to the kernels; `alone` is the width of its one joined input."""
        cell = cast("UnICORNNCell", self.cell(at, direction))
        sources = (0,) if input_size else self.layer_sources(at + 1)
        widths = (self.input_size, *[self.hidden_size] * self.num_layers)
        sizes = (input_size,) if input_size else tuple(widths[source] for source in sources)
        step = cell.effective_step()
        return Layer(cell.input_weight, cell.bias, cell.weight, step, cell.alpha, sources, sizes)


def _stacked(states: list[State]) -> tuple[Tensor, Tensor]:
    position, velocity = (torch.stack(parts) for parts in zip(*states, strict=True))
    return position, velocity
