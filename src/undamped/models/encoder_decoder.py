"""One-to-many and many-to-many: a vector decoded into a sequence, a sequence into another.

An encoder reads the whole input; its last output is the initial state of a decoder, which reads
its own output, one symbol at a time. In training it reads the true symbols instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.sequence_model import draw_symbol
from undamped.nn.recurrent import Recurrent


class Decoder(nn.Module):
    """One-to-many: a decoder of symbols whose initial state is computed from a vector.

    Args:
        network: The registry name of the network; the options must contain its hidden size.
        context_size: Features of the vector.
        symbols: Number of symbols; one more marks the start.
        embedding_size: Size of the embedding of symbols.
        network_options: Options of the network.

    Example:
        >>> decoder = Decoder("gru", context_size=8, symbols=10, hidden_size=32)
        >>> decoder.generate(torch.randn(4, 8), length=5).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        network: str,
        context_size: PositiveInt,
        symbols: PositiveInt,
        *,
        embedding_size: PositiveInt = 16,
        **network_options: Any,
    ) -> None:
        super().__init__()
        self.symbols = symbols
        self.start = symbols
        self.embedding = nn.Embedding(symbols + 1, embedding_size)
        self.network: Recurrent = models.build(
            network, input_size=embedding_size, **network_options
        )
        state = self.network.initial_state(1)
        self._tensors = 1 if isinstance(state, Tensor) else len(state)
        shape = (state if isinstance(state, Tensor) else state[0]).shape
        self._cells, self._width = int(shape[0]), int(shape[2])
        self.to_state = nn.Linear(context_size, self._tensors * self._cells * self._width)
        self.head = nn.Linear(self.network.output_size, symbols)

    def first_state(self, context: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the state before the first symbol for a vector (batch, context)."""
        batch = context.shape[0]
        flat = self.to_state(context).view(batch, self._tensors, self._cells, self._width)
        parts = tuple(flat[:, i].transpose(0, 1).contiguous() for i in range(self._tensors))
        return parts if self._tensors > 1 else parts[0]

    def forward(self, context: Tensor, targets: Tensor) -> Tensor:
        """Return scores (time, batch, symbols) with the true symbols (time, batch) as inputs."""
        start = torch.full_like(targets[:1], self.start)
        inputs = torch.cat([start, targets[:-1]])
        output, _ = self.network(self.embedding(inputs), self.first_state(context))
        return self.head(output)

    @torch.no_grad()
    def generate(
        self,
        context: Tensor,
        length: PositiveInt,
        *,
        temperature: PositiveFloat | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return symbols (time, batch), sampled one at a time, or the likeliest by default."""
        state: Any = self.first_state(context)
        symbol = torch.full((context.shape[0],), self.start, device=context.device)
        symbols = []
        for _ in range(length):
            features, state = self.network.step(self.embedding(symbol), state)
            symbol = draw_symbol(self.head(features), temperature, generator)
            symbols.append(symbol)
        return torch.stack(symbols)


class EncoderDecoder(nn.Module):
    """Many-to-many: an encoder reads a sequence to its end, then a decoder generates another.

    Args:
        network: The registry name of both networks.
        input_size: Features of the input at each step.
        symbols: Number of output symbols.
        embedding_size: Size of the embedding of output symbols.
        network_options: Options of both networks, such as hidden_size.

    Example:
        >>> model = EncoderDecoder("gru", input_size=3, symbols=10, hidden_size=32)
        >>> scores = model(torch.randn(20, 4, 3), torch.zeros(5, 4, dtype=torch.long))
        >>> scores.shape
        torch.Size([5, 4, 10])
    """

    def __init__(
        self,
        network: str,
        input_size: PositiveInt,
        symbols: PositiveInt,
        *,
        embedding_size: PositiveInt = 16,
        **network_options: Any,
    ) -> None:
        super().__init__()
        self.encoder: Recurrent = models.build(network, input_size=input_size, **network_options)
        self.decoder = Decoder(
            network,
            self.encoder.output_size,
            symbols,
            embedding_size=embedding_size,
            **{**network_options, "bidirectional": False},
        )

    def forward(self, x: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return scores (time, batch, symbols) of the true output (time, batch)."""
        context, _ = self.encoder.last(x, None, lengths)
        return self.decoder(context, targets)

    @torch.no_grad()
    def generate(
        self,
        x: Tensor,
        length: PositiveInt,
        *,
        lengths: Tensor | None = None,
        temperature: PositiveFloat | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return `length` symbols (time, batch) for an input (time, batch, input)."""
        context, _ = self.encoder.last(x, None, lengths)
        return self.decoder.generate(context, length, temperature=temperature, generator=generator)
