"""CfC, the closed-form continuous-time network (Hasani and others, 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.network import JumpNetwork, Parts


@models.register("cfc")
class CfC(JumpNetwork):
    """CfC: a step that is told how long it lasts, and goes from one answer to another with time.

    Equation:
        b = φ(W [x, h]),  s = σ̂(p(b) Δt + q(b)),  h' = (1 − s) ⊙ tanh(f(b)) + s ⊙ tanh(g(b))

    Symbols:
        b a shared backbone of one layer, φ(u) = 1.7159 tanh(2u/3), f, g, p, q linear, Δt time since
        the sample before, in usual gaps.

    Promise:
        None. It is no flow: a step over no time changes the state too.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        backbone_size: Width of the backbone.
        missing: Whether features may be missing; the task decides.
        gap: The usual time between two samples; the task says it.

    Example:
        >>> net = undamped.models.CfC(3, 16)
        >>> output, state = net(torch.randn(20, 4, 3), torch.rand(20, 4).cumsum(0))

    Reference:
        R. Hasani and others. Closed-form continuous-time neural networks. Nature Machine
        Intelligence, 2022.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        backbone_size: Units = 128,
        missing: bool = False,
        gap: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size, missing=missing, gap=gap)
        width = input_size * (2 if missing else 1)
        self.read = nn.Linear(width, backbone_size)
        self.recall = nn.Linear(hidden_size, backbone_size, bias=False)
        self.heads = nn.Linear(backbone_size, 4 * hidden_size)

    # The state: h, and the time since it last changed.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h, and the time since the last sample."""
        return (self.hidden_size, 1)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """What the backbone sees of a sample."""
        return self.read(torch.cat([x, observed.to(x.dtype)], -1) if self.missing else x)

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """One step, as long as it has been since the last."""
        hidden, since = state
        return self._step(projected, hidden, since), torch.zeros_like(since)

    def _step(self, projected: Tensor, hidden: Tensor, since: Tensor) -> Tensor:
        backbone = 1.7159 * torch.tanh((2 / 3) * (projected + self.recall(hidden)))
        f, g, p, q = self.heads(backbone).chunk(4, dim=-1)
        share = torch.sigmoid(p * since + q)
        return torch.lerp(torch.tanh(f), torch.tanh(g), share)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Let time pass."""
        return state[0], state[1] + gaps.unsqueeze(-1).to(state[1].dtype)

    def output(self, state: Parts) -> Tensor:
        """h; where time has passed since, what a step without a sample would make of it."""
        hidden, since = state
        if not bool((since > 0).any()):
            return hidden
        nothing = self.read(hidden.new_zeros(self.read.in_features))
        return torch.where(since > 0, self._step(nothing, hidden, since), hidden)
