"""Cells that store states and attend to them: the recurrent step reads s = f(h, c).

A memory cell contains another cell, the recurrence, whose hidden state is replaced by s before
every step: h_t = step(s_{t−1}, x_t). Then h_t is stored, s_{t−1} is the query of the attention to
the stored states, and s_t = f(h_t, c_t). Cells differ in which states they store, and how long.

The state consists of tensors in which zero means empty: multiplied by zero, a sample is reset.
Stored states are flat, (batch, slots × hidden), the oldest first, with a flag for every slot.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt, check, options_of
from undamped._base.registry import models
from undamped.nn.bases.cell import Cell, ScanResult, State, reference_scan
from undamped.nn.bases.coupled import runs_compiled
from undamped.nn.lstm import GRUCell, LSTMCell
from undamped.nn.orthogonal import ExpRNNCell, ScoRNNCell
from undamped.nn.rnn import RNNCell

if TYPE_CHECKING:
    from undamped.kernels.memory.scan import Record

Alignment = Literal["additive", "dot"]
Mix = Literal["half", "sum", "learned"]
Nonlinearity = Literal["tanh", "relu", "modrelu"]
_EMPTY = -1e30
"""The score of an empty slot: finite, so that a sample without any slot has no NaN."""


class Attention(nn.Module):
    """e_i = vᵀ tanh(W q + U m_i) or (W q)ᵀ(U m_i)/√n, a = softmax(e), c = Σ a_i m_i, s = f(h, c).

    Args:
        size: Number n of features of states and queries.
        alignment: Additive (Bahdanau) or scaled dot product.
        mix: The function f: (h + c)/2, h + c, or a learned map of both.
    """

    def __init__(self, size: int, alignment: Alignment, mix: Mix) -> None:
        super().__init__()
        self.alignment: Alignment = alignment
        self.mix: Mix = mix
        self.query = nn.Parameter(torch.empty(size, size))
        self.key = nn.Parameter(torch.empty(size, size))
        nn.init.xavier_normal_(self.query)
        nn.init.xavier_normal_(self.key)
        self.score = nn.Parameter(torch.empty(size)) if alignment == "additive" else None
        if self.score is not None:
            nn.init.xavier_normal_(self.score.data.unsqueeze(0))
        self.mixing = nn.Parameter(torch.empty(size, 2 * size)) if mix == "learned" else None
        if self.mixing is not None:
            with torch.no_grad():  # initially (h + c)/2
                self.mixing.copy_(0.5 * torch.eye(size).repeat(1, 2))

    def scores(self, query: Tensor, states: Tensor) -> Tensor:
        """Return e (batch, slots) for a query (batch, size) and states (batch, slots, size)."""
        projected_query = F.linear(query, self.query).unsqueeze(1)
        keys = F.linear(states, self.key)
        if self.score is None:
            return (projected_query * keys).sum(-1) * query.shape[-1] ** -0.5
        return torch.tanh(projected_query + keys) @ self.score

    def combine(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Return s = f(h, c)."""
        if self.mixing is not None:
            return F.linear(torch.cat((hidden, context), dim=-1), self.mixing)
        total = hidden + context
        return total / 2 if self.mix == "half" else total


def weights_of(scores: Tensor, occupied: Tensor) -> Tensor:
    """Return the softmax over the occupied slots; zeros for a sample that has none."""
    return torch.softmax(scores.masked_fill(~occupied, _EMPTY), dim=-1) * occupied


def recurrence_of(
    name: str, input_size: int, hidden_size: int, nonlinearity: Nonlinearity | None
) -> Cell:
    """Build the recurrent part of a memory cell from the registry name of its network."""
    kind = getattr(models[name], "cell_class", None) if name in models else None
    if kind is None or kind.state_names[0] != "hidden" or issubclass(kind, MemoryCell):
        raise OptionError(
            "recurrence must be a recurrent network whose first state is its hidden state, such as "
            f"'rnn-orth', 'exprnn', 'rnn', 'gru' or 'lstm', got '{name}'."
        )
    options: dict[str, Any] = {}
    if nonlinearity is not None:
        if "nonlinearity" not in options_of(kind):
            raise OptionError(
                f"recurrence='{name}' has no option nonlinearity, got '{nonlinearity}'. Leave it "
                "out, or use 'rnn-orth'."
            )
        options["nonlinearity"] = nonlinearity
    return kind(input_size, hidden_size, **check(name, kind, options))


@dataclass(frozen=True)
class CompiledStep:
    """A recurrence for which there are compiled loops: h = φ(V s + projected), or gates.

    Args:
        kind: The name of φ, "lstm" or "gru".
        matrix: V.
        projection: The input matrix, and the bias if there is one.
        thresholds: The threshold of modReLU, if it is φ.
    """

    kind: str
    matrix: Tensor
    projection: State
    thresholds: State = ()

    @property
    def tensors(self) -> State:
        """All tensors of the step."""
        return (self.matrix, *self.projection, *self.thresholds)


def _gated(inner: GRUCell, constants: State) -> CompiledStep:
    """Return a GRU as four blocks that sum the parts of state and input: r, z, and the candidate
    twice, since the reset gate multiplies only the part of the state."""
    recurrent, inside = constants
    zeros = torch.zeros_like(recurrent[: inner.hidden_size])
    r, z, candidate = recurrent.chunk(3)
    weight, *bias = inner.input_tensors()
    projection = [torch.cat((weight, torch.zeros_like(weight[: inner.hidden_size])))]
    projection += [torch.cat((vector, inside)) for vector in bias]
    return CompiledStep("gru", torch.cat((r, z, zeros, candidate)), tuple(projection))


class MemoryCell(Cell):
    """A recurrence, attention, and a memory of states.

    Args:
        recurrence: The recurrent part.
        alignment: Kind of attention.
        mix: The function f in s = f(h, c).
    """

    needs_full_precision = True
    screened_by: str | None = None
    """Name of the screening in the compiled loops; None if all states are stored."""
    expects: bool = False
    """Whether the last part of the memory is the expected input."""
    memory_names: ClassVar[tuple[str, ...]]
    """The parts of the state besides h, s and further states of the recurrence."""

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
        """Size of each part of the memory; None if it grows."""

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        recurrent_sizes = (self.hidden_size,) * (1 + len(self.recurrence.state_names))
        return (*recurrent_sizes, *self.memory_sizes)

    def split(self, state: State) -> tuple[Tensor, State, State]:
        """Return s, further states of the recurrence, and the memory."""
        count = len(self.recurrence.state_names)
        return state[1], state[2 : 1 + count], state[1 + count :]

    def project(self, x: Tensor) -> Tensor:
        return self.recurrence.project(x)

    def constants(self) -> State:
        return self.recurrence.constants()

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make a step of the recurrence, store its state, attend, and mix."""
        mixed, cell_state, memory = self.split(state)
        recurrent_constants = constants[:-1] if self.expects else constants
        hidden, *further = self.recurrence.advance(
            projected, (mixed, *cell_state), recurrent_constants
        )
        context, memory = self.remember(projected, hidden, state, memory, constants)
        return (hidden, self.attention.combine(hidden, context), *further, *memory)

    @abstractmethod
    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Store a new state and attend; return the context (batch, hidden) and the memory."""

    def _trim_state(self, state: State) -> State:
        """Drop the slots that are empty for every sample, if the memory grows."""
        if not self.memory_plan.state_grows:
            return state
        names = list(self.state_names)
        past, flags = (state[names.index(name)] for name in ("past", "seen"))
        occupied = (flags != 0).flatten(0, -2).any(0)
        slots = past.unflatten(-1, (-1, self.hidden_size))[..., occupied, :].flatten(-2)
        trimmed = {"past": slots, "seen": flags[..., occupied]}
        return tuple(trimmed.get(name, part) for name, part in zip(names, state, strict=True))

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan (time, batch, input) in the compiled loops, or in a plain one if they cannot run."""
        constants = self.cached_constants()
        step = self.compiled_step(constants)
        if step is None or not runs_compiled(x, *state, *step.tensors):
            return reference_scan(self, x, state, lengths)
        return self.compiled_scan(self._scan_arguments(step, x, state, lengths))

    def compiled_step(self, constants: State) -> CompiledStep | None:
        """Return the recurrence as the compiled loops need it, or None if there are none for it."""
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

    def compiled_scan(self, arguments: tuple[Any, ...]) -> ScanResult:
        """Scan (time, batch, input) with the compiled loops, from their arguments."""
        from undamped.kernels.memory.scan import memory_scan
        from undamped.kernels.memory.shard import Shard

        output, final = memory_scan(Shard, *arguments)
        last, lengths = output[-1], arguments[0].lengths
        if lengths is not None:
            ends = (lengths - 1).view(1, -1, 1).expand(1, -1, self.hidden_size)
            last = output.gather(0, ends).squeeze(0)
        further = (final["cell"],) if len(self.recurrence.state_names) > 1 else ()
        memory = self.from_slots(final["slots"].transpose(0, 1), final["scores"], final["flags"])
        expected = (final["expected"],) if self.expects else ()
        return output, (last, final["mixed"], *further, *memory, *expected)

    def record(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Record:
        """Scan (time, batch, input) and return the attention and the stored states."""
        from undamped.kernels.memory.scan import memory_record
        from undamped.kernels.memory.shard import Shard

        step = self.compiled_step(self.constants())
        if step is None:
            raise OptionError(
                f"The attention of a network with recurrence {type(self.recurrence).__name__} "
                "cannot be recorded. Use an RNN, a GRU or an LSTM."
            )
        return memory_record(Shard, *self._scan_arguments(step, x, state, lengths))

    def _scan_arguments(
        self, step: CompiledStep, x: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Any, ...]:
        from undamped.kernels.memory import arrays
        from undamped.kernels.memory.shard import Marks, Plan

        mixed, cell_state, memory = self.split(state)
        attention, batch = self.attention, x.shape[1]
        plan = Plan(
            step=getattr(arrays, step.kind.upper()),
            alignment=getattr(arrays, attention.alignment.upper()),
            mix=getattr(arrays, attention.mix.upper()),
            screening=getattr(arrays, self.screened_by) if self.screened_by else -1,
            recent=getattr(self, "recent", 0),
            relevant=getattr(self, "relevant", 0),
            lengths=lengths,
        )
        slots, scores, flags = self.as_slots(memory, batch)
        tensors = {
            "mixed": mixed,
            "cell": cell_state[0] if cell_state else x.new_empty(batch, 0),
            "slots": slots.transpose(0, 1),
            "recurrent": torch.cat((step.matrix, attention.query)),
            **self._weights_by_name(step),
            **self.screening_tensors(),
        }
        expected = memory[-1] if self.expects else x.new_empty(batch, 0)
        return plan, x, tensors, Marks(scores, flags, expected)

    def _weights_by_name(self, step: CompiledStep) -> dict[str, Tensor]:
        """Return the weights by their names in the compiled scan, but the recurrent matrix."""
        attention = self.attention
        weights: dict[str, Tensor] = {"input": step.projection[0], "key": attention.key}
        weights |= dict(zip(("bias",), step.projection[1:], strict=False))
        weights |= dict(zip(("threshold",), step.thresholds, strict=False))
        optional = {"vector": attention.score, "mixing": attention.mixing}
        return weights | {name: part for name, part in optional.items() if part is not None}

    def weights(self, query: Tensor, states: Tensor, flags: Tensor) -> Tensor:
        """Return the attention of a query (batch, hidden) to states (batch, slots, hidden)."""
        return weights_of(self.attention.scores(query, states), flags != 0)

    def as_slots(self, memory: State, batch: int) -> State:
        """Return states (batch, slots, hidden), scores and flags (batch, slots) of the memory."""
        raise NotImplementedError

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor) -> State:
        """Return the memory with these slots; the inverse of `as_slots`."""
        raise NotImplementedError

    def screening_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the screening, by their names in the compiled scan."""
        return {}
