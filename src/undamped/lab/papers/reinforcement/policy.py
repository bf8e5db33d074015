"""An agent: an image encoder, a recurrent memory, an actor and a critic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.registry import models
from undamped.lab.papers.reinforcement.environments import CHANNELS, WORDS, View

FEATURES = 64


class Agent(nn.Module):
    """An image encoder, a memory, an actor and a critic.

    Args:
        network: Registry name of the recurrent network that is the memory.
        actions: Number of actions.
        options: Options of the network.
    """

    def __init__(self, network: str, actions: int, **options: Any) -> None:
        super().__init__()
        # The attribute names are keys of stored checkpoints.
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
        self.actor = _head(size, actions, 0.01)  # initially nearly uniform
        self.critic = _head(size, 1, 1.0)

    def features(self, view: View) -> Tensor:
        """Return the feature vectors (n, features) of observations (n, …)."""
        return torch.cat((self.eyes(view.cells), view.words), dim=-1)

    def evaluate(self, memories: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of actions and the expected return, for each row."""
        inputs = torch.cat((memories, features), dim=-1)
        return F.log_softmax(self.actor(inputs), dim=-1), self.critic(inputs).squeeze(-1)

    def step(self, view: View, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Process one observation; return log-probabilities, expected return and new state."""
        features = self.features(view)
        memories, state = self.memory.step(features, state)
        return *self.evaluate(memories, features), state


def _head(size: int, outputs: int, scale: float) -> nn.Sequential:
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, scale)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(size, 64), nn.Tanh(), last)
