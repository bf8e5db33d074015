"""SAB (Ke et al., 2018): sparse attentive backtracking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.kernels.dispatch import runs_as_operator
from undamped.nn.bases.cell import MemoryPlan, ScanResult, State
from undamped.nn.bases.memory import CompiledStep, MemoryCell, weights_of
from undamped.nn.lstm import LSTMCell
from undamped.nn.recurrent import Recurrent

if TYPE_CHECKING:
    from undamped.kernels.memory.scan import Record


class SABCell(MemoryCell):
    """SAB: an LSTM that stores every k-th state and attends to those with the largest scores.

    Equation:
        ĥ_t, m_t = LSTM(h_{t−1}, m_{t−1}, x_t),  h_t = ĥ_t + c_t,  c_t = Σ a_i h_{ki}
        e_i = vᵀ tanh(W ĥ_t + K h_{ki}),  a_i = relu(e_i − e₍ₗ₊₁₎)/Σ relu(e_j − e₍ₗ₊₁₎)
        Every k-th h_t is stored; the output of the network is (h_t, c_t).

    Symbols:
        h hidden state, m memory cell of the LSTM, c context, k `keep_every`, l `top`, e₍ₗ₊₁₎ the
        largest score that is left out; if at most l states are stored, a = softmax(e). W, K, v
        trained.

    Promise:
        None strict. After `truncate` steps there is a gradient only through attended states. The
        state grows by one hidden vector every k steps. Weights are differences of scores divided by
        their sum: if scores are nearly equal, rounding decides which states are attended to, and
        results in float32 and float64 may differ from there on.

    Args:
        keep_every: The number k of steps between two stored states.
        top: The number l of states that are attended to.
        truncate: Number of steps after which the gradient through h and m is cut; 0 for never.
        scores: As in the paper, or as in the program released with it: e_i = vᵀ tanh(K h_{ki}), and
            e₍ₗ₎ is subtracted if more than l states are stored. These weights do not depend on ĥ_t
            (its part cancels), and l − 1 states remain: none with l = 1. The program also stores an
            initial state of zeros and cuts the gradient one step earlier.
        input_std: Standard deviation of the initial input matrix, as for LSTM.
        forget_bias: Initial bias of the forget gate, as for LSTM.

    Example:
        >>> net = undamped.nn.SAB(3, 16, keep_every=5, top=3)
        >>> output, state = net(torch.randn(50, 4, 3))
        >>> output.shape
        torch.Size([50, 4, 32])

    Reference:
        N. R. Ke, A. Goyal, O. Bilaniuk, J. Binas, M. C. Mozer, C. Pal, Y. Bengio. Sparse attentive
        backtracking: temporal credit assignment through reminding. NeurIPS, 2018.
    """

    state_names = ("hidden", "context", "memory", "past", "seen", "clock")
    memory_names = state_names[3:]
    memory_plan = MemoryPlan(state_grows=True)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        keep_every: PositiveInt = 10,
        top: PositiveInt = 10,
        truncate: NonNegativeInt = 10,
        scores: Literal["paper", "released"] = "paper",
        input_std: PositiveFloat | None = None,
        forget_bias: float | None = None,
    ) -> None:
        inner = LSTMCell(input_size, hidden_size, input_std=input_std, forget_bias=forget_bias)
        super().__init__(input_size, hidden_size, inner, "additive", "sum")
        self.keep_every, self.top, self.truncate = keep_every, top, truncate
        self.scores: Literal["paper", "released"] = scores
        if scores == "released":
            self.attention.query.requires_grad_(False).zero_()

    @property
    def output_size(self) -> int:
        return 2 * self.hidden_size

    @property
    def memory_sizes(self) -> tuple[int | None, ...]:
        """None for past states and their flags, which grow, and 1 for the number of steps."""
        return (None, None, 1)

    def output(self, state: State) -> Tensor:
        return torch.cat(state[:2], dim=-1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make a step, attend, add the context, and store every k-th sum."""
        hidden, _, memory, past, flags, clock = state
        if self.truncate and torch.is_grad_enabled():
            cut = (clock != 0) & (clock % self.truncate == 0)
            hidden = torch.where(cut, hidden.detach(), hidden)
            memory = torch.where(cut, memory.detach(), memory)
        hidden, memory = self.recurrence.advance(projected, (hidden, memory), constants)
        states = past.view(hidden.shape[0], -1, self.hidden_size)
        context = torch.zeros_like(hidden)
        if states.shape[1]:
            weights = self._weights(hidden, states, flags != 0)
            context = (weights.unsqueeze(1) @ states).squeeze(1)
        hidden, clock = hidden + context, clock.detach() + 1
        due = clock % self.keep_every == 0
        if bool(due.any()):
            past = torch.cat((past, torch.where(due, hidden, 0)), dim=-1)
            flags = torch.cat((flags, due.to(flags.dtype)), dim=-1)
        return hidden, context, memory, past, flags.detach(), clock

    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Not used: `advance` attends before it stores a state."""
        raise NotImplementedError

    @property
    def _limit_rank(self) -> int:
        """Rank of the score that is subtracted from all, 1 for the largest."""
        return self.top + (self.scores == "paper")

    def _weights(self, query: Tensor, states: Tensor, flags: Tensor) -> Tensor:
        scores = self.attention.scores(query, states)
        if states.shape[1] <= self.top:
            return weights_of(scores, flags)
        masked = scores.masked_fill(~flags, -torch.inf)
        limit = masked.topk(self._limit_rank, dim=1).values[:, -1:]
        full = flags.sum(1, keepdim=True) > self.top
        above = F.relu(scores - torch.where(full, limit, scores.amin(1, keepdim=True))) * flags
        total = above.sum(1, keepdim=True)
        sparse = above / torch.where(total > 0, total, 1)
        return torch.where(full, sparse, weights_of(scores, flags))

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan (time, batch, input) in the compiled loops, or in a plain one if they cannot run.

        The number of stored states depends on the values of a clock, so that the pass is not traced
        by a compiler and is refused for tensors without values.
        """
        if not runs_as_operator(x):
            return super().scan(x, state, lengths)
        exporting = getattr(torch.compiler, "is_exporting", bool)
        if x.is_meta or exporting():
            raise OptionError(
                "SAB cannot run without values (on the meta device or in torch.export), because "
                "its memory grows depending on a clock. Use rellstm or memlstm instead."
            )
        untraced_scan: Any = torch.compiler.disable(super().scan)
        return untraced_scan(x, state, lengths)

    def compiled_scan(self, arguments: tuple[Any, ...]) -> ScanResult:
        from undamped.kernels.memory.scan import memory_scan
        from undamped.kernels.memory.sparse_shard import SparseShard

        output, final = memory_scan(SparseShard, *arguments)
        recurrent_state = (final[name] for name in ("hidden", "context", "cell"))
        past = final["slots"].transpose(0, 1).flatten(1)
        return output, (*recurrent_state, past, final["flags"], final["clock"])

    def record(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Record:
        from undamped.kernels.memory.scan import memory_record
        from undamped.kernels.memory.sparse_shard import SparseShard

        step = self.compiled_step(self.constants())
        assert step is not None  # an LSTM
        return memory_record(SparseShard, *self._scan_arguments(step, x, state, lengths))

    def _scan_arguments(
        self, step: CompiledStep, x: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Any, ...]:
        from undamped.kernels.memory.sparse_shard import SparseMarks, SparsePlan

        hidden, context, memory, past, flags, clock = state
        steps = torch.arange(1, x.shape[0] + 1).unsqueeze(1)
        due = (clock.detach().cpu().long().t() + steps) % self.keep_every == 0
        if lengths is not None:
            due &= steps <= lengths.cpu()
        plan = SparsePlan(
            keep_every=self.keep_every,
            top=self.top,
            rank=self._limit_rank,
            truncate=self.truncate if torch.is_grad_enabled() else 0,
            lengths=lengths,
            times=due.any(1).nonzero().squeeze(1).numpy(),
        )
        tensors = {
            "hidden": hidden,
            "context": context,
            "cell": memory,
            "slots": past.view(x.shape[1], -1, self.hidden_size).transpose(0, 1),
            "recurrent": step.matrix,
            "query": self.attention.query,
            **self._weights_by_name(step),
        }
        return plan, x, tensors, SparseMarks(flags, clock)

    def _freeze_finished(self, new: State, old: State, running: Tensor) -> State:
        """Store no further states of samples that have ended."""
        *recurrent, past, flags, clock = new
        *before, old_past, _, old_clock = old
        more = past.shape[1] - old_past.shape[1]
        if more and not bool((running & (flags[:, -1:] != 0)).any()):  # none of the running
            past, flags = old_past, flags[:, :-1]
        elif more:
            past = torch.cat((past[:, :-more], torch.where(running, past[:, -more:], 0)), dim=-1)
            flags = torch.cat((flags[:, :-1], flags[:, -1:] * running), dim=-1)
        return (
            *(torch.where(running, n, o) for n, o in zip(recurrent, before, strict=True)),
            past,
            flags,
            torch.where(running, clock, old_clock),
        )


class SAB(Recurrent, cell=SABCell, name="sab"): ...
