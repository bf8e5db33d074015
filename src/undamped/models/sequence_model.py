"""A whole model: input, network, readout.

The input may be vectors, symbols (whole numbers, one-hot or embedded) or pixels (bytes, scaled
to [0, 1]). Where a task's samples come at times of their own, or not all of them were measured, a
network sees that as further features: the logarithm of the time since the sample before, and a one
for each feature that was measured, beside the last value that was. The readout sees the last
output at each sequence's true end, every output, or their mean over the true length; where answers
are asked for at given times, the output at the last sample before, and how long ago that was.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.contract import Answer, Batch, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.head_at_times import HeadAtTimes
from undamped.models.model_stream import ModelStream
from undamped.models.network_stream import NetworkStream
from undamped.models.stamped import gap_feature, hold_last, stamps_of, time_gaps
from undamped.models.task_model import StreamingModel, refuse_unfit
from undamped.nn.recurrent import Recurrent

InputKind = Literal["vectors", "symbols", "pixels", "states"]
Readout = Literal["last", "every", "mean"]


class StreamState(NamedTuple):
    """What a stream has to remember beside the state of its network."""

    network: Any
    total: Tensor | None = None  # (batch, features), the sum of all outputs, for their mean
    steps: int = 0
    held: Tensor | None = None  # (batch, input), the last values that were measured


class SequenceModel(StreamingModel):
    """Input → recurrent network → readout.

    Args:
        network: The registry name of the network.
        input_size: Features per step; for symbols, how many symbols there are.
        output_size: Features of the answer: classes, or regression targets.
        input_kind: Vectors, symbols or pixels; states are vectors.
        readout: Which outputs the readout sees.
        embedding_size: Size of a trained embedding of symbols; 0 means one-hot.
        reads: What else of a batch is used: "times" is a further feature, ln(1 + time since the
            sample before / usual gap); "observed" a further one for each feature, whether it was
            measured, and those that were not hold their last value; with "target_times" answers
            are given at those times.
        gap: The usual time between two samples.
        network_options: The options of the network, hidden_size among them.

    Example:
        >>> model = SequenceModel("unicornn", input_size=6, output_size=5, hidden_size=32)
        >>> model(torch.randn(1000, 4, 6)).shape
        torch.Size([4, 5])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed", "target_times"})
    learns_quantiles = True
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number", "trajectory"})
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
        reads: Sequence[Literal["times", "observed", "target_times"]] = (),
        gap: PositiveFloat = 1.0,
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
        self.gap = gap
        self.embedding = nn.Embedding(input_size, embedding_size) if embedding_size else None
        width = embedding_size or input_size
        width += int("times" in self.reads) + ("observed" in self.reads) * input_size
        self.network: Recurrent = models.build(network, input_size=width, **network_options)
        self.carries_on = not self.network.bidirectional
        self.head: Any
        if self.at_times:
            self.head = HeadAtTimes(self.network.output_size, output_size, gap=gap)
            return
        self.head = nn.Linear(self.network.output_size, output_size)
        nn.init.kaiming_normal_(self.head.weight, nonlinearity="linear")
        nn.init.zeros_(self.head.bias)

    @property
    def at_times(self) -> bool:
        """Whether answers are given at times that a batch asks for."""
        return "target_times" in self.reads

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
            readout=_readout(shape, options),
            reads=tuple(sorted(shape.needs)),  # type: ignore[arg-type] (all are met)
            gap=shape.clock.gap if shape.clock is not None else 1.0,
            **{key: value for key, value in options.items() if key != "readout"},
        )

    def encode(self, x: Tensor | Batch) -> Tensor:
        """Turn raw input (time, batch, …), or a whole batch, into vectors (time, batch, features).

        A batch is needed where the network reads more than the input.
        """
        if isinstance(x, Batch):
            x = x.expanded()
            held = x.inputs
            if x.observed is not None and "observed" in self.reads:
                held = hold_last(x.inputs, x.observed)
            gap = None if x.times is None else time_gaps(x.times, x.lengths, self.gap)
            return self.encode_features(held, gap, x.observed)
        return self.encode_features(x, None, None)

    def encode_features(
        self, x: Tensor, gap: Tensor | None = None, observed: Tensor | None = None
    ) -> Tensor:
        """Turn raw input, the time since the one before and what was measured into features.

        Args:
            x: (…, features); what was not measured holds its last value already.
            gap: (…,) or None.
            observed: (…, features) or None.
        """
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
        dtype = self.dtype
        if self.input_kind == "symbols":
            vectors = self._encode_symbols(x)
        else:
            vectors = (x / 255 if self.input_kind == "pixels" else x).to(dtype)
        if observed is not None:
            vectors = torch.cat([vectors, observed.to(dtype)], -1)
        if gap is not None:
            ago = gap_feature(gap, self.gap).unsqueeze(-1).to(dtype)
            vectors = torch.cat([vectors, ago], -1)
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
        return F.one_hot(x.long(), self.input_size).to(self.dtype)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the answers and the final state, for sequences that go on in the next call.

        Answers are (batch, output), (time, batch, output) with `readout="every"`, or
        (outputs, batch, output) at the times a batch asks for.
        """
        vectors, lengths = self.encode(batch), batch.lengths
        state = state.network if isinstance(state, StreamState) else state
        if self.at_times:
            features, state = self.network(vectors, state, lengths)
            return self._answer_at_times(features, batch), state
        if self.readout == "last":
            features, state = self.network.last(vectors, state, lengths)
        elif self.readout == "mean":
            features, state = self.network.mean(vectors, state, lengths)
        else:
            features, state = self.network(vectors, state, lengths)
        return self.head(features), state

    def on_features(self) -> nn.Module:
        """Return the model as it is behind `encode`: it reads features, and nothing beside them.

        Network and readout are the same objects. Where the readout needs times, the network alone
        is returned.
        """
        if self.at_times:
            return self.network
        behind = copy.copy(self)
        behind.input_size, behind.input_kind = self.network.input_size, "vectors"
        behind.reads = frozenset()
        return behind

    def _answer_at_times(self, features: Tensor, batch: Batch) -> Tensor:
        if batch.target_times is None:
            raise ShapeError(
                "batch.target_times: expected a tensor, got none. The model was built to answer at "
                "given times."
            )
        times = stamps_of(batch, self.gap)
        return self.head(features, times, batch.lengths, batch.target_times)

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
        dt: Tensor | float | None = None,
        *,
        observed: Tensor | None = None,
        ahead: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Take one sample of a stream (batch, …); return the answer so far and the state.

        With `readout="mean"` the state holds the sum and the number of outputs too, and with
        missing features the last values; a state that `run` returned starts these anew.

        Args:
            x: The sample.
            state: What the step before returned.
            dt: (batch,) the time since the sample before, for a model that reads times; 0 for the
                first.
            observed: (batch, features) what was measured, for a model that reads that.
            ahead: (outputs,) how long after the sample answers are asked for, of a model that
                answers at given times: (outputs, batch, output) is returned then; at the moment
                of the sample if none are given.
        """
        before = state if isinstance(state, StreamState) else StreamState(state)
        if observed is not None and "observed" in self.reads:
            x = hold_last(x.unsqueeze(0), observed.unsqueeze(0), before.held).squeeze(0)
        gap = None if dt is None else torch.as_tensor(dt, device=x.device).expand(len(x))
        features, state = self.network.step(self.encode_features(x, gap, observed), before.network)
        held = x if "observed" in self.reads else None
        if self.at_times:
            now = features.new_zeros(1, len(x))
            asked = now if ahead is None else ahead.to(now).unsqueeze(1).expand(-1, len(x))
            answers = self.head(features.unsqueeze(0), now, None, asked)
            answer = answers[0] if ahead is None else answers
        elif self.readout != "mean":
            answer = self.head(features)
        else:
            # In double precision: a stream may go on for longer than single precision can count.
            total = features.double() if before.total is None else before.total + features
            steps = before.steps + 1
            answer = self.head((total / steps).to(features.dtype))
            return answer, StreamState(state, total, steps, held)
        return answer, state if held is None else StreamState(state, held=held)

    def stream(self, ahead: Tensor | None = None) -> ModelStream:
        """Return an object that is fed with the samples of one stream; see `StreamingModel`."""
        return super().stream(ahead) if self.at_times else NetworkStream(self)

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


def _readout(shape: TaskShape, options: Mapping[str, Any]) -> Readout:
    """Return which outputs the readout sees; at times that are asked for there is no choice."""
    asked = options.get("readout")
    if shape.answer == "trajectory" and asked is not None:
        raise OptionError(
            explain(
                "model.readout",
                expected="none, since answers are asked for at given times",
                got=f"'{asked}'",
                remedy="Leave it out.",
            )
        )
    return asked or shape.readout
