"""An agent: it looks, remembers with any recurrent network, acts, and guesses what it will get."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.registry import models
from undamped.lab.papers.reinforcement.environments import CHANNELS, WORDS, View

FEATURES = 64


class Agent(nn.Module):
    """Eyes, memory, an actor and a critic.

    Args:
        network: Registry name of the recurrent network that is the memory.
        actions: How many actions there are.
        options: Options of the network.
    """

    def __init__(self, network: str, actions: int, **options: Any) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(CHANNELS, 32, 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4, FEATURES),
            nn.ReLU(),
        )
        self.memory = models.build(network, input_size=FEATURES + WORDS, **options)
        size = self.memory.output_size + FEATURES + WORDS
        self.actor = _head(size, actions, 0.01)  # a policy that prefers nothing yet
        self.critic = _head(size, 1, 1.0)

    def features(self, view: View) -> Tensor:
        """Turn what is seen (n, …) into vectors (n, features)."""
        return torch.cat((self.eyes(view.cells), view.words), dim=-1)

    def judge(self, remembered: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of actions and the expected return, for rows of vectors."""
        both = torch.cat((remembered, features), dim=-1)
        return F.log_softmax(self.actor(both), dim=-1), self.critic(both).squeeze(-1)

    def step(self, view: View, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Take one look; return log-probabilities, the expected return and the new state."""
        features = self.features(view)
        remembered, state = self.memory.step(features, state)
        return *self.judge(remembered, features), state


def _head(size: int, outputs: int, scale: float) -> nn.Sequential:
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, scale)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(size, 64), nn.Tanh(), last)
