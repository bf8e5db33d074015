"""A whole model: input, network, readout.

The input may be vectors, symbols (whole numbers, one-hot or embedded) or pixels (bytes, scaled
to [0, 1]). The readout sees the last output at each sequence's true end, every output, or their
mean over the true length.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.errors import OptionError, ShapeError, explain
from undamped.networks.recurrent import Recurrent
from undamped.networks.sequence_tensors import padding_mask
from undamped.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.registry import models

InputKind = Literal["vectors", "symbols", "pixels"]
Readout = Literal["last", "every", "mean"]


class MeanState(NamedTuple):
    """The state of a stream whose readout is the mean of all outputs so far."""

    network: Any
    total: Tensor  # (batch, features)
    steps: int


class SequenceModel(nn.Module):
    """Input → recurrent network → readout.

    Args:
        network: The registry name of the network.
        input_size: Features per step; for symbols, how many symbols there are.
        output_size: Features of the answer: classes, or regression targets.
        input_kind: Vectors, symbols or pixels.
        readout: Which outputs the readout sees.
        embedding_size: Size of a trained embedding of symbols; 0 means one-hot.
        network_options: The options of the network, hidden_size among them.

    Example:
        >>> model = SequenceModel("unicornn", input_size=6, output_size=5, hidden_size=32)
        >>> model(torch.randn(1000, 4, 6)).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        network: str,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        input_kind: InputKind = "vectors",
        readout: Readout = "last",
        embedding_size: NonNegativeInt = 0,
        **network_options: Any,
    ) -> None:
        super().__init__()
        if embedding_size and input_kind != "symbols":
            raise OptionError(
                explain(
                    "embedding_size",
                    expected=f"0, since {input_kind} are not embedded",
                    got=embedding_size,
                    remedy="Only symbols have an embedding.",
                )
            )
        for fixed in ("input_size", "batch_first"):
            if fixed in network_options:
                raise OptionError(
                    f"{network}.{fixed}: expected to be left out, got a value. The task sets it."
                )
        member = models[network]
        if not (isinstance(member, type) and issubclass(member, Recurrent)):
            raise OptionError(
                explain(
                    network,
                    expected="a recurrent model, since the input is a sequence",
                    got="one that reads single vectors",
                    remedy="Choose another; 'undamped list' shows all.",
                )
            )
        self.input_size = input_size
        self.input_kind = input_kind
        self.readout = readout
        self.embedding = nn.Embedding(input_size, embedding_size) if embedding_size else None
        self.network: Recurrent = models.build(
            network, input_size=embedding_size or input_size, **network_options
        )
        self.head = nn.Linear(self.network.output_size, output_size)
        nn.init.kaiming_normal_(self.head.weight, nonlinearity="linear")
        nn.init.zeros_(self.head.bias)

    def encode(self, x: Tensor) -> Tensor:
        """Turn raw input (time, batch, …) into vectors (time, batch, features)."""
        if self.input_kind == "symbols":
            return self._encode_symbols(x)
        vectors = x / 255 if self.input_kind == "pixels" else x
        return vectors.to(self.head.weight.dtype)

    def _encode_symbols(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or (
            x.numel() and not 0 <= int(x.min()) <= int(x.max()) < self.input_size
        ):
            raise ShapeError(
                explain(
                    "symbols",
                    expected=f"whole numbers from 0 to {self.input_size - 1}",
                    got="others",
                    remedy="Number the symbols from 0 and give the count as input_size.",
                )
            )
        if self.embedding is not None:
            return self.embedding(x)
        return F.one_hot(x.long(), self.input_size).to(self.head.weight.dtype)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Any = None,
    ) -> Tensor:
        """Return the answer: (batch, output), or (time, batch, output) with `readout="every"`."""
        return self.run(x, lengths, state)[0]

    def run(
        self, x: Tensor, lengths: Tensor | None = None, state: Any = None
    ) -> tuple[Tensor, Any]:
        """Return the answer and the final state, for a sequence that goes on in the next call."""
        vectors = self.encode(x)
        if self.readout == "last":
            features, state = self.network.last(vectors, state, lengths)
        else:
            features, state = self.network(vectors, state, lengths)
            if self.readout == "mean":
                features = _mean_over_time(features, lengths)
        return self.head(features), state

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one sample of a stream (batch, …); return the answer so far and the state.

        With `readout="mean"` the state holds the sum and the number of outputs too; a state
        that `run` returned starts a new mean.
        """
        mean = state if isinstance(state, MeanState) else None
        features, state = self.network.step(self.encode(x), mean.network if mean else state)
        if self.readout != "mean":
            return self.head(features), state
        # In double precision: a stream may go on for longer than single precision can count.
        total = features.double() if mean is None else mean.total + features
        steps = 1 if mean is None else mean.steps + 1
        answer = self.head((total / steps).to(features.dtype))
        return answer, MeanState(state, total, steps)

    @torch.no_grad()
    def generate(
        self,
        prompt: Tensor,
        length: PositiveInt,
        *,
        temperature: PositiveFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue a prompt of symbols (time, batch), drawing one symbol at a time.

        Args:
            prompt: At least one symbol per sequence.
            length: How many symbols to add.
            temperature: Below 1 the likeliest symbols are preferred, above 1 the others.
            generator: Where the random numbers come from.
        """
        if self.input_kind != "symbols" or self.readout != "every":
            raise OptionError(
                "generate: expected a model that reads symbols and answers at every step, got "
                f"input_kind='{self.input_kind}' and readout='{self.readout}'. Train one on the "
                "'characters' task."
            )
        was_training = self.training
        self.eval()
        features, state = self.network(self.encode(prompt))
        logits, drawn = self.head(features[-1]), []
        for _ in range(length):
            drawn.append(draw_symbol(logits, temperature, generator))
            logits, state = self.step(drawn[-1], state)
        self.train(was_training)
        return torch.stack(drawn)


def draw_symbol(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Draw one symbol per sequence (batch,) from scores (batch, symbols)."""
    probabilities = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def _mean_over_time(features: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return features.mean(0)
    kept = features.masked_fill(padding_mask(features, lengths), 0)
    return kept.sum(0) / lengths.to(features.dtype).unsqueeze(-1)
