"""A task model of sequences: input, recurrent network, readout.

The input may be vectors, symbols (integers, one-hot or embedded) or pixels (bytes, scaled to
[0, 1]). Timestamps and missing values become further features: the logarithm of the time since the
previous sample, and a mask with the last measured values. The readout reads the output at the
true end of each sequence, every output, or their mean over the true length; for predictions at
query times, the output at the last sample before and the time since.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.contract import Answer, Batch, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.task_model import (
    Readout,
    Sample,
    StreamingModel,
    is_kind,
    needed_target_times,
    readout_for,
    refuse_unfit,
)
from undamped.models.timestamped import (
    HeadAtTimes,
    gap_feature,
    hold_last,
    time_gaps,
    timestamps_of,
)
from undamped.nn.recurrent import Recurrent
from undamped.nn.sequence_tensors import join_features

InputKind = Literal["vectors", "symbols", "pixels", "states"]


class StreamState(NamedTuple):
    """The state of a stream: that of the network, and sums or values that the model needs."""

    network: Any
    total: Tensor | None = None  # (batch, features), the sum of all outputs
    steps: int = 0
    last_values: Tensor | None = None  # (batch, input), the last measured values


class SequenceModel(StreamingModel):
    """Input → recurrent network → readout.

    Args:
        network: The registry name of the network.
        input_size: Features per step; for symbols, the number of symbols.
        output_size: Features of the prediction: classes, or regression targets.
        input_kind: Vectors, symbols or pixels; states are vectors.
        readout: Which outputs the readout reads.
        embedding_size: Size of a trained embedding of symbols; 0 means one-hot.
        reads: Further parts of a batch: "times" adds the feature ln(1 + time since the previous
            sample / usual gap); "observed" adds a mask for each feature, and missing values are
            replaced by the last measured ones; with "target_times" predictions are at those times.
        gap: The usual time between two samples.
        network_options: Options of the network, such as hidden_size.

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
    """Options of this model, which every recurrent network accepts too."""

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
                "reads='observed' does not apply to symbols. Use another symbol for missing ones."
            )
        if embedding_size and input_kind != "symbols":
            raise OptionError(
                f"embedding_size must be 0 for {input_kind}, which are not embedded, got "
                f"{embedding_size}."
            )
        for fixed in ("input_size", "batch_first"):
            if fixed in network_options:
                raise OptionError(f"{network}.{fixed} is set by the task. Leave it out.")
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
        """Whether predictions are at the target times of a batch."""
        return "target_times" in self.reads

    @classmethod
    def for_task(cls, shape: TaskShape, name: str, options: Mapping[str, Any]) -> SequenceModel:
        """Build the model for tasks of a shape with the network called `name`."""
        refuse_points(name)
        refuse_unfit(name, cls, shape)
        return cls(
            name,
            shape.input_size,
            shape.output_size,
            input_kind=shape.input_kind,  # type: ignore[arg-type] (images are a need)
            readout=readout_for(shape, options, shape.answer == "trajectory"),
            reads=tuple(sorted(shape.needs)),  # type: ignore[arg-type] (all are met)
            gap=shape.clock.gap if shape.clock is not None else 1.0,
            **{key: value for key, value in options.items() if key != "readout"},
        )

    def encode(self, x: Tensor | Batch) -> Tensor:
        """Return the features (time, batch, features) of raw input (time, batch, …) or of a batch.

        A batch is needed if the network reads more than the input.
        """
        if isinstance(x, Batch):
            x = x.expanded()
            inputs = x.inputs
            if x.observed is not None and "observed" in self.reads:
                inputs = hold_last(x.inputs, x.observed)
            gap = None if x.times is None else time_gaps(x.times, x.lengths, self.gap)
            return self.encode_features(inputs, gap, x.observed)
        return self.encode_features(x, None, None)

    def encode_features(
        self, x: Tensor, gap: Tensor | None = None, observed: Tensor | None = None
    ) -> Tensor:
        """Return the features of raw input, of the time since the previous sample, and of the mask.

        Args:
            x: (…, features); missing values are replaced by the last measured ones already.
            gap: (…,) or None.
            observed: (…, features) or None.
        """
        for name, value in (("times", gap), ("observed", observed)):
            if value is None and name in self.reads:
                raise ShapeError(f"batch.{name} is None, but the model was built to read it.")
            if value is not None and name not in self.reads:
                raise ShapeError(
                    f"The model does not read batch.{name}. Build it with reads=('{name}',)."
                )
        if self.input_kind == "symbols":
            parts = [self._encode_symbols(x)]
        else:
            parts = [(x / 255 if self.input_kind == "pixels" else x).to(self.dtype)]
        if observed is not None:
            parts.append(observed.to(self.dtype))
        if gap is not None:
            parts.append(gap_feature(gap, self.gap).unsqueeze(-1).to(self.dtype))
        return join_features(parts)

    def _encode_symbols(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or (
            x.numel() and not 0 <= int(x.min()) <= int(x.max()) < self.input_size
        ):
            raise ShapeError(
                f"Symbols must be integers from 0 to {self.input_size - 1}, the input_size minus 1."
            )
        if self.embedding is not None:
            return self.embedding(x)
        return F.one_hot(x.long(), self.input_size).to(self.dtype)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions and the final state, from which the next call can continue.

        Predictions are (batch, output), (time, batch, output) with `readout="every"`, or
        (outputs, batch, output) at the target times of a batch.
        """
        vectors, lengths = self.encode(batch), batch.lengths
        state = state.network if isinstance(state, StreamState) else state
        if self.at_times:
            features, state = self.network(vectors, state, lengths)
            times, queries = timestamps_of(batch, self.gap), needed_target_times(batch)
            return self.head(features, times, lengths, queries), state
        calls = {"last": self.network.last, "mean": self.network.mean, "every": self.network}
        features, state = calls[self.readout](vectors, state, lengths)
        return self.head(features), state

    def on_features(self) -> nn.Module:
        """Return the part of the model after `encode`, which reads features only.

        Network and readout are the same objects. If the readout needs times, the network alone is
        returned.
        """
        if self.at_times:
            return self.network
        model = copy.copy(self)
        model.input_size, model.input_kind = self.network.input_size, "vectors"
        model.reads = frozenset()
        return model

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield the states of the layers, then the prediction."""
        _, state = self.network(self.encode(batch), None, batch.lengths)
        parts = (state,) if isinstance(state, Tensor) else state
        for index, layer in enumerate(zip(*parts, strict=True)):
            yield f"the state of network.cells.{index}", layer
        yield "the output of head", self.run(batch)[0]

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, Any]:
        """Return the prediction after a sample, and the state.

        With `readout="mean"` the state also holds the sum and the number of outputs, and with
        missing features the last values; a state that `run` returned restarts these.
        """
        x, dt, observed, offsets = sample
        before = state if isinstance(state, StreamState) else StreamState(state)
        if observed is not None and "observed" in self.reads:
            x = hold_last(x.unsqueeze(0), observed.unsqueeze(0), before.last_values).squeeze(0)
        gap = None if dt is None else torch.as_tensor(dt, device=x.device).expand(len(x))
        features, state = self.network.step(self.encode_features(x, gap, observed), before.network)
        last_values = x if "observed" in self.reads else None
        if self.at_times:
            now = features.new_zeros(1, len(x))
            queries = now if offsets is None else offsets.to(now).unsqueeze(1).expand(-1, len(x))
            outputs = self.head(features.unsqueeze(0), now, None, queries)
            output = outputs[0] if offsets is None else outputs
        elif self.readout != "mean":
            output = self.head(features)
        else:
            # In double precision, since a stream may be long.
            total = features.double() if before.total is None else before.total + features
            steps = before.steps + 1
            output = self.head((total / steps).to(features.dtype))
            return output, StreamState(state, total, steps, last_values)
        if last_values is None:
            return output, state
        return output, StreamState(state, last_values=last_values)

    @torch.no_grad()
    def generate(
        self,
        prompt: Tensor,
        length: PositiveInt,
        *,
        temperature: PositiveFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return symbols that continue a prompt (time, batch), sampled one at a time.

        Args:
            prompt: At least one symbol per sequence.
            length: Number of symbols to generate.
            temperature: Divides the scores; below 1 likely symbols become likelier.
            generator: The random number generator.
        """
        if self.input_kind != "symbols" or self.readout != "every":
            raise OptionError(
                "generate needs a model of symbols with readout='every', such as one trained on "
                f"the 'characters' task, got input_kind='{self.input_kind}' and "
                f"readout='{self.readout}'."
            )
        was_training = self.training
        self.eval()
        features, state = self.network(self.encode(prompt))
        logits, symbols = self.head(features[-1]), []
        for _ in range(length):
            symbols.append(draw_symbol(logits, temperature, generator))
            logits, state = self.step(symbols[-1], state)
        self.train(was_training)
        return torch.stack(symbols)


def refuse_points(network: str) -> None:
    """Refuse the network called `network` if it reads single points."""
    if not is_kind(network, Recurrent):
        raise OptionError(
            f"'{network}' reads single vectors, and the input is a sequence. Choose a recurrent "
            "model; 'undamped list models' shows all."
        )


def draw_symbol(
    logits: Tensor, temperature: float | None, generator: torch.Generator | None
) -> Tensor:
    """Return one random symbol per sequence (batch,) from scores (batch, symbols).

    Without a temperature it is the likeliest.
    """
    if temperature is None:
        return logits.argmax(-1)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)
