"""Attention of a recurrent state over remembered ones, and what becomes of its answer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Alignment = Literal["additive", "dot"]
Mix = Literal["half", "sum", "learned"]
_HIDDEN = -1e30
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
            with torch.no_grad():  # (h + c)/2 to begin with
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
    """Return the softmax over the slots that hold something; zeros where none does."""
    masked = torch.softmax(scores.masked_fill(~occupied, _HIDDEN), dim=-1)
    return masked * occupied
