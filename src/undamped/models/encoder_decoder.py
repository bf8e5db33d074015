"""One-to-many and many-to-many: a vector unrolled into a sequence, a sequence into another.

An encoder reads everything and hands its last output to a decoder, which starts from a state
made of that one vector and then reads its own answers, one symbol at a time. While training the
true answers are fed instead.
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
    """One-to-many: a vector becomes the state from which symbols are drawn.

    Args:
        network: The registry name of the network; its hidden size must be given in the options.
        context_size: Features of the vector.
        symbols: How many symbols there are; one more is kept to stand before the first.
        embedding_size: Size of the embedding of symbols.
        network_options: The options of the network.

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
        """Turn a vector (batch, context) into the state before the first symbol."""
        batch = context.shape[0]
        flat = self.to_state(context).view(batch, self._tensors, self._cells, self._width)
        parts = tuple(flat[:, i].transpose(0, 1).contiguous() for i in range(self._tensors))
        return parts if self._tensors > 1 else parts[0]

    def forward(self, context: Tensor, targets: Tensor) -> Tensor:
        """Return scores (time, batch, symbols) while the true symbols (time, batch) are fed."""
        start = torch.full_like(targets[:1], self.start)
        fed = torch.cat([start, targets[:-1]])
        output, _ = self.network(self.embedding(fed), self.first_state(context))
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
        """Draw symbols (time, batch) one at a time; without a temperature, take the likeliest."""
        state: Any = self.first_state(context)
        symbol = torch.full((context.shape[0],), self.start, device=context.device)
        drawn = []
        for _ in range(length):
            features, state = self.network.step(self.embedding(symbol), state)
            logits = self.head(features)
            symbol = (
                logits.argmax(-1)
                if temperature is None
                else draw_symbol(logits, temperature, generator)
            )
            drawn.append(symbol)
        return torch.stack(drawn)


class EncoderDecoder(nn.Module):
    """Many-to-many through one vector: read a sequence to its end, then write another.

    Args:
        network: The registry name of both networks.
        input_size: Features of the input at each step.
        symbols: How many symbols the answer is made of.
        embedding_size: Size of the embedding of the answer's symbols.
        network_options: The options of both networks, hidden_size among them.

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
        """Return scores (time, batch, symbols) for the true answers (time, batch)."""
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
        """Read (time, batch, input) and write `length` symbols (time, batch)."""
        context, _ = self.encoder.last(x, None, lengths)
        return self.decoder.generate(context, length, temperature=temperature, generator=generator)
