"""Cells that remember states and attend to them: the recurrent step reads s = f(h, c).

A memory cell is another cell, the recurrence, whose hidden state is replaced by s before every
step: h_t = step(s_{t−1}, x_t). Then h_t is remembered, s_{t−1} asks what is remembered, and
s_t = f(h_t, c_t) goes on. What is remembered, and for how long, is what the cells differ in.

The state is plain tensors, in which zero means empty: multiplied by zero, a sample starts afresh.
States remembered lie flat, (batch, slots × hidden), the oldest first, beside a flag for every slot.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt, check, options_of
from undamped._base.registry import models
from undamped.nn.bases.attention import Alignment, Attention, Mix, weights_of
from undamped.nn.bases.cell import Cell, State, reference_scan
from undamped.nn.bases.coupled import runs_compiled
from undamped.nn.exprnn import ExpRNNCell
from undamped.nn.gru import GRUCell
from undamped.nn.lstm import LSTMCell
from undamped.nn.rnn import RNNCell
from undamped.nn.scornn import ScoRNNCell

if TYPE_CHECKING:
    from undamped.kernels.memory.plan import Marks, Plan
    from undamped.kernels.memory.record import Record

Nonlinearity = Literal["tanh", "relu", "modrelu"]


def recurrence_of(
    name: str, input_size: int, hidden_size: int, nonlinearity: Nonlinearity | None
) -> Cell:
    """Build the recurrent part of a memory cell from the registry name of its network."""
    kind = getattr(models[name], "cell_class", None) if name in models else None
    if kind is None or kind.state_names[0] != "hidden" or issubclass(kind, MemoryCell):
        raise OptionError(
            f"recurrence must be a recurrent network whose first state is its hidden state, got "
            f"'{name}'. "
            "For example: 'rnn-orth', 'exprnn', 'rnn', 'gru' or 'lstm'."
        )
    options: dict[str, Any] = {}
    if nonlinearity is not None:
        if "nonlinearity" not in options_of(kind):
            raise OptionError(
                f"recurrence='{name}' has no option nonlinearity, got '{nonlinearity}'. Leave it "
                "out, or "
                "use 'rnn-orth'."
            )
        options["nonlinearity"] = nonlinearity
    return kind(input_size, hidden_size, **check(name, kind, options))


@dataclass(frozen=True)
class CompiledStep:
    """A recurrence that the compiled loops know: h = φ(V s + projected), or gates.

    Args:
        kind: The name of φ, "lstm" or "gru".
        matrix: V.
        projection: The input matrix, and the bias where there is one.
        thresholds: The threshold of modReLU, where it is φ.
    """

    kind: str
    matrix: Tensor
    projection: State
    thresholds: State = ()

    @property
    def tensors(self) -> State:
        """All of them."""
        return (self.matrix, *self.projection, *self.thresholds)


def _gated(inner: GRUCell, constants: State) -> CompiledStep:
    """Return a GRU as four blocks that add up what state and input give: r, z, and the candidate
    twice, since the reset gate multiplies the part of the state alone."""
    recurrent, inside = constants
    zeros = torch.zeros_like(recurrent[: inner.hidden_size])
    r, z, candidate = recurrent.chunk(3)
    weight, *bias = inner.input_tensors()
    projection = [torch.cat((weight, torch.zeros_like(weight[: inner.hidden_size])))]
    projection += [torch.cat((vector, inside)) for vector in bias]
    return CompiledStep("gru", torch.cat((r, z, zeros, candidate)), tuple(projection))


class MemoryCell(Cell):
    """A recurrence, an attention, and something that remembers.

    Args:
        recurrence: The recurrent part.
        alignment: Kind of attention.
        mix: The function f in s = f(h, c).
    """

    needs_full_precision = True
    screened_by: str | None = None
    """How the compiled loops call the screening; None where everything is remembered."""
    expects: bool = False
    """Whether the last part of the memory is the input that is expected."""
    memory_names: ClassVar[tuple[str, ...]]
    """The parts of the state beyond h, s and what else the recurrence carries."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        recurrence: Cell,
        alignment: Alignment,
        mix: Mix,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.recurrence = recurrence
        self.attention = Attention(hidden_size, alignment, mix)
        self.state_names = (*self.state_names[:2], *recurrence.state_names[1:], *self.memory_names)

    @property
    @abstractmethod
    def memory_sizes(self) -> tuple[int | None, ...]:
        """How many numbers each part of the memory has; None where it grows."""

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """How many numbers each part of the state has; None where it grows."""
        recurrent_sizes = (self.hidden_size,) * (1 + len(self.recurrence.state_names))
        return (*recurrent_sizes, *self.memory_sizes)

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Zeros: nothing is remembered."""
        return tuple(like.new_zeros(batch, size or 0) for size in self.state_sizes)

    def split(self, state: State) -> tuple[Tensor, State, State]:
        """Return s, what else the recurrence carries, and the memory."""
        count = len(self.recurrence.state_names)
        return state[1], state[2 : 1 + count], state[1 + count :]

    def project(self, x: Tensor) -> Tensor:
        """What the recurrence makes of the input."""
        return self.recurrence.project(x)

    def constants(self) -> State:
        """What the recurrence computes once a pass."""
        return self.recurrence.constants()

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Step, remember, attend, mix."""
        mixed, cell_state, memory = self.split(state)
        recurrent_constants = constants[:-1] if self.expects else constants
        hidden, *carried_on = self.recurrence.advance(
            projected, (mixed, *cell_state), recurrent_constants
        )
        context, remembered = self.remember(projected, hidden, state, memory, constants)
        return (hidden, self.attention.combine(hidden, context), *carried_on, *remembered)

    @abstractmethod
    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Take in a new state, attend; return the context (batch, hidden) and the memory."""

    def trim_state(self, state: State) -> State:
        """Drop the slots that hold nothing for any sample, where a memory grows."""
        if not self.memory_plan.state_grows:
            return state
        names = list(self.state_names)
        past, flags = (state[names.index(name)] for name in ("past", "seen"))
        occupied = (flags != 0).flatten(0, -2).any(0)
        slots = past.unflatten(-1, (-1, self.hidden_size))[..., occupied, :].flatten(-2)
        trimmed = {"past": slots, "seen": flags[..., occupied]}
        return tuple(trimmed.get(name, part) for name, part in zip(names, state, strict=True))

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Run over (time, batch, input) with the compiled loops, or plainly where they cannot."""
        constants = self.cached_constants()
        step = self.compiled_step(constants)
        if step is None or not runs_compiled(x, *state, *step.tensors):
            return reference_scan(self, x, state, lengths)
        return self.compiled_scan(step, x, state, lengths, constants)

    def compiled_step(self, constants: State) -> CompiledStep | None:
        """Return what the compiled loops need of the recurrence, or None if they do not know it."""
        inner = self.recurrence
        if isinstance(inner, LSTMCell):
            detaching = inner.h_detach > 0 and inner.training
            return None if detaching else CompiledStep("lstm", constants[0], inner.input_tensors())
        if isinstance(inner, GRUCell) and not self.expects:
            return _gated(inner, constants)
        if isinstance(inner, RNNCell) and not getattr(inner, "thresholds", False):
            return CompiledStep(inner.nonlinearity, constants[0], inner.input_tensors())
        if isinstance(inner, RNNCell | ExpRNNCell | ScoRNNCell):
            kind = getattr(inner, "nonlinearity", "modrelu")
            thresholds = inner.elementwise_tensors(constants)
            kind = "modrelu" if thresholds else kind
            if kind in ("tanh", "relu", "modrelu", "identity"):
                return CompiledStep(kind, constants[0], inner.input_tensors(), thresholds)
        return None

    def compiled_scan(
        self,
        step: CompiledStep,
        x: Tensor,
        state: State,
        lengths: Tensor | None,
        constants: State,
    ) -> tuple[Tensor, State]:
        """Run over (time, batch, input) with the compiled loops."""
        from undamped.kernels.memory.scan import memory_scan
        from undamped.kernels.memory.share import Share

        arguments = self._scan_arguments(step, x, state, lengths, constants)
        output, final = memory_scan(Share, *arguments)
        last = output[-1]
        if lengths is not None:
            ends = (lengths - 1).view(1, -1, 1).expand(1, -1, self.hidden_size)
            last = output.gather(0, ends).squeeze(0)
        onward = (final["cell"],) if len(self.recurrence.state_names) > 1 else ()
        memory = self.from_slots(final["slots"].transpose(0, 1), final["scores"], final["seen"])
        expected = (final["expected"],) if self.expects else ()
        return output, (last, final["mixed"], *onward, *memory, *expected)

    def record(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Record:
        """Run over (time, batch, input) and say what was attended to and what was kept."""
        from undamped.kernels.memory.record import attention_record

        constants = self.constants()
        step = self.compiled_step(constants)
        if step is None:
            raise OptionError(
                f"The attention of a network with recurrence {type(self.recurrence).__name__} "
                "cannot be "
                "recorded. Use an RNN, a GRU or an LSTM."
            )
        return attention_record(*self._scan_arguments(step, x, state, lengths, constants))

    def _scan_arguments(
        self,
        step: CompiledStep,
        x: Tensor,
        state: State,
        lengths: Tensor | None,
        constants: State,
    ) -> tuple[Plan, Tensor, dict[str, Tensor], Marks]:
        from undamped.kernels.memory import arrays, attend
        from undamped.kernels.memory.plan import Marks, Plan

        mixed, cell_state, memory = self.split(state)
        attention, batch = self.attention, x.shape[1]
        plan = Plan(
            step=getattr(arrays, step.kind.upper()),
            alignment=getattr(attend, attention.alignment.upper()),
            mix=getattr(arrays, attention.mix.upper()),
            screening=getattr(arrays, self.screened_by) if self.screened_by else -1,
            recent=getattr(self, "recent", 0),
            kept=getattr(self, "kept", 0),
            lengths=lengths,
        )
        slots, scores, flags = self.as_slots(memory, batch)
        tensors = {
            "mixed": mixed,
            "cell": cell_state[0] if cell_state else x.new_empty(batch, 0),
            "slots": slots.transpose(0, 1),
            "input": step.projection[0],
            "recurrent": torch.cat((step.matrix, attention.query)),
            "key": attention.key,
            **dict(zip(("bias",), step.projection[1:], strict=False)),
            **dict(zip(("threshold",), step.thresholds, strict=False)),
            **({} if attention.score is None else {"vector": attention.score}),
            **({} if attention.mixing is None else {"mixing": attention.mixing}),
            **self.screening_tensors(constants),
        }
        expected = memory[-1] if self.expects else x.new_empty(batch, 0)
        return plan, x, tensors, Marks(scores, flags, expected)

    def weights(self, query: Tensor, states: Tensor, flags: Tensor) -> Tensor:
        """Return the attention of a query (batch, hidden) to states (batch, slots, hidden)."""
        return weights_of(self.attention.scores(query, states), flags != 0)

    def as_slots(self, memory: State, batch: int) -> State:
        """Return states (batch, slots, hidden), scores and flags (batch, slots) of the memory."""
        raise NotImplementedError

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor) -> State:
        """Return the memory made of its slots."""
        raise NotImplementedError

    def screening_tensors(self, constants: State) -> dict[str, Tensor]:
        """Return the tensors that screening reads, by their names in the compiled scan."""
        return {}
