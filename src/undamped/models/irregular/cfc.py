"""CfC, the closed-form continuous-time network (Hasani and others, 2022)."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.network import JumpNetwork, Parts, SampleOptions


@models.register("cfc")
class CfC(JumpNetwork):
    """CfC: a step whose result interpolates between two states with the time it lasts.

    Equation:
        b = φ(W [x, h]),  s = σ̂(p(b) Δt + q(b)),  h' = (1 − s) ⊙ tanh(f(b)) + s ⊙ tanh(g(b))

    Symbols:
        b a shared backbone of one layer, φ(u) = 1.7159 tanh(2u/3), f, g, p, q linear, Δt time since
        the previous sample, in usual gaps.

    Promise:
        None. It is not a flow: a step of duration zero changes the state too.

    Args:
        backbone_size: Width of the backbone.
        samples: See `SampleOptions`.

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
        **samples: Unpack[SampleOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **samples)
        width = input_size * (2 if self.missing else 1)
        self.read = nn.Linear(width, backbone_size)
        self.recall = nn.Linear(hidden_size, backbone_size, bias=False)
        self.heads = nn.Linear(backbone_size, 4 * hidden_size)

    # The state: h, and the time since it last changed.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h, and the time since the last sample."""
        return (self.hidden_size, 1)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """Return the input of the backbone."""
        return self.read(torch.cat([x, observed.to(x.dtype)], -1) if self.missing else x)

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """Return the state after a step over the time since the last one."""
        hidden, since = state
        return self._step(projected, hidden, since), torch.zeros_like(since)

    def _step(self, projected: Tensor, hidden: Tensor, since: Tensor) -> Tensor:
        backbone = 1.7159 * torch.tanh((2 / 3) * (projected + self.recall(hidden)))
        f, g, p, q = self.heads(backbone).chunk(4, dim=-1)
        weight = torch.sigmoid(p * since + q)
        return torch.lerp(torch.tanh(f), torch.tanh(g), weight)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Add the gaps to the time since the last sample."""
        return state[0], state[1] + gaps.unsqueeze(-1).to(state[1].dtype)

    def output(self, state: Parts) -> Tensor:
        """Return h, or the result of a step without a sample where time has passed since."""
        hidden, since = state
        if not bool((since > 0).any()):
            return hidden
        empty = self.read(hidden.new_zeros(self.read.in_features))
        return torch.where(since > 0, self._step(empty, hidden, since), hidden)
