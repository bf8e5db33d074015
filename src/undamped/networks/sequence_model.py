"""A whole model: input, network, readout.

The input may be vectors, symbols (whole numbers, one-hot or embedded) or pixels (bytes, scaled
to [0, 1]). Where a task's samples come at times of their own, or not all of them were measured, a
network sees that as further features: the time since the sample before, and a one for each
feature that was measured. The readout sees the last output at each sequence's true end, every
output, or their mean over the true length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.contract import Batch, TaskShape, Use
from undamped.errors import OptionError, ShapeError, explain
from undamped.networks.recurrent import Recurrent
from undamped.networks.sequence_tensors import padding_mask
from undamped.networks.task_model import TaskModel, refuse_unfit
from undamped.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.registry import models

InputKind = Literal["vectors", "symbols", "pixels", "states"]
Readout = Literal["last", "every", "mean"]


class MeanState(NamedTuple):
    """The state of a stream whose readout is the mean of all outputs so far."""

    network: Any
    total: Tensor  # (batch, features)
    steps: int


class SequenceModel(TaskModel):
    """Input → recurrent network → readout.

    Args:
        network: The registry name of the network.
        input_size: Features per step; for symbols, how many symbols there are.
        output_size: Features of the answer: classes, or regression targets.
        input_kind: Vectors, symbols or pixels; states are vectors.
        readout: Which outputs the readout sees.
        embedding_size: Size of a trained embedding of symbols; 0 means one-hot.
        reads: What else of a batch the network sees, as further features: "times" is the time since
            the sample before (0 for the first), "observed" a one for each feature that was
            measured; features that were not are zero.
        network_options: The options of the network, hidden_size among them.

    Example:
        >>> model = SequenceModel("unicornn", input_size=6, output_size=5, hidden_size=32)
        >>> model(torch.randn(1000, 4, 6)).shape
        torch.Size([4, 5])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed"})
    input_kinds = frozenset(get_args(InputKind))
    sequential = True
    settable: ClassVar[tuple[str, ...]] = ("embedding_size", "readout")
    """Options of the model around a network, which every recurrent network accepts."""

    def __init__(
        self,
        network: str,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        input_kind: InputKind = "vectors",
        readout: Readout = "last",
        embedding_size: NonNegativeInt = 0,
        reads: Sequence[Literal["times", "observed"]] = (),
        **network_options: Any,
    ) -> None:
        super().__init__()
        if "observed" in reads and input_kind == "symbols":
            raise OptionError(
                "reads: expected features that can be missing, got symbols. Give the missing "
                "symbol a number of its own."
            )
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
        refuse_points(network)
        self.input_size = input_size
        self.input_kind = input_kind
        self.readout = readout
        self.reads = frozenset(reads)
        self.embedding = nn.Embedding(input_size, embedding_size) if embedding_size else None
        width = embedding_size or input_size
        width += int("times" in self.reads) + ("observed" in self.reads) * input_size
        self.network: Recurrent = models.build(network, input_size=width, **network_options)
        self.carries_on = not self.network.bidirectional
        self.head = nn.Linear(self.network.output_size, output_size)
        nn.init.kaiming_normal_(self.head.weight, nonlinearity="linear")
        nn.init.zeros_(self.head.bias)

    @classmethod
    def for_task(cls, shape: TaskShape, name: str, options: Mapping[str, Any]) -> SequenceModel:
        """Build the model that answers tasks of a shape with the network called `name`."""
        refuse_points(name)
        refuse_unfit(name, cls, shape)
        return cls(
            name,
            shape.input_size,
            shape.output_size,
            input_kind=shape.input_kind,  # type: ignore[arg-type] (pictures are a need)
            readout=options.get("readout", shape.readout),
            reads=tuple(sorted(shape.needs)),  # type: ignore[arg-type] (all are met)
            **{key: value for key, value in options.items() if key != "readout"},
        )

    def encode(self, x: Tensor | Batch) -> Tensor:
        """Turn raw input (time, batch, …), or a whole batch, into vectors (time, batch, features).

        A batch is needed where the network reads more than the input.
        """
        if isinstance(x, Batch):
            x = x.expanded()
            return self._encode(x.inputs, gaps(x.times), x.observed)
        return self._encode(x, None, None)

    def _encode(self, x: Tensor, gap: Tensor | None, observed: Tensor | None) -> Tensor:
        for name, given in (("times", gap), ("observed", observed)):
            if (given is None) == (name in self.reads):
                raise ShapeError(
                    explain(
                        f"batch.{name}",
                        expected="a tensor" if given is None else "none",
                        got="none" if given is None else "a tensor",
                        remedy="The model was built to read it."
                        if given is None
                        else f"Build the model with reads=('{name}',) to use it.",
                    )
                )
        dtype = self.head.weight.dtype
        if self.input_kind == "symbols":
            vectors = self._encode_symbols(x)
        else:
            vectors = (x / 255 if self.input_kind == "pixels" else x).to(dtype)
        if observed is not None:
            vectors = torch.cat([vectors.masked_fill(~observed, 0), observed.to(dtype)], -1)
        if gap is not None:
            vectors = torch.cat([vectors, gap.unsqueeze(-1).to(dtype)], -1)
        return vectors

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

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the answers and the final state, for sequences that go on in the next call.

        Answers are (batch, output), or (time, batch, output) with `readout="every"`.
        """
        vectors, lengths = self.encode(batch), batch.lengths
        if self.readout == "last":
            features, state = self.network.last(vectors, state, lengths)
        else:
            features, state = self.network(vectors, state, lengths)
            if self.readout == "mean":
                features = _mean_over_time(features, lengths)
        return self.head(features), state

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through the states of the layers, then the answer."""
        _, state = self.network(self.encode(batch), None, batch.lengths)
        parts = (state,) if isinstance(state, Tensor) else state
        for number, layer in enumerate(zip(*parts, strict=True)):
            yield f"the state of network.cells.{number}", layer
        yield "the output of head", self.run(batch)[0]

    def step(
        self,
        x: Tensor,
        state: Any = None,
        *,
        gap: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Take one sample of a stream (batch, …); return the answer so far and the state.

        With `readout="mean"` the state holds the sum and the number of outputs too; a state
        that `run` returned starts a new mean.

        Args:
            x: The sample.
            state: What the step before returned.
            gap: (batch,) the time since the sample before, for a model that reads times.
            observed: (batch, features) what was measured, for a model that reads that.
        """
        mean = state if isinstance(state, MeanState) else None
        vectors = self._encode(x, gap, observed)
        features, state = self.network.step(vectors, mean.network if mean else state)
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


def refuse_points(network: str) -> None:
    """Refuse a network that reads single points.

    Args:
        network: Its registry name.
    """
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


def draw_symbol(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Draw one symbol per sequence (batch,) from scores (batch, symbols)."""
    probabilities = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def _mean_over_time(features: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return features.mean(0)
    kept = features.masked_fill(padding_mask(features, lengths), 0)
    return kept.sum(0) / lengths.to(features.dtype).unsqueeze(-1)


def gaps(times: Tensor | None) -> Tensor | None:
    """Return the time since the step before, of times (time, batch); 0 for the first step."""
    return None if times is None else torch.diff(times, dim=0, prepend=times[:1])
