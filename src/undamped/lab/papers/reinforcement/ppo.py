"""Proximal policy optimisation (Schulman et al., 2017) with a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undamped.lab.papers.reinforcement.policy import Agent
from undamped.lab.papers.reinforcement.rollout import Episodes, Rollout, episodes_of


@dataclass(frozen=True)
class PPO:
    """How an agent learns.

    Args:
        learning_rate: Adam's step size.
        epochs: How often every rollout is gone through.
        group: How many environments make an update.
        clip: How far the chance of an action may move in one rollout.
        entropy: How much undecided policies are preferred.
        value: How much the critic's error counts.
        largest_gradient: Largest norm of the whole gradient.
    """

    learning_rate: float = 1e-3
    epochs: int = 4
    group: int = 4
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    largest_gradient: float = 0.5


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    settings: PPO,
    generator: torch.Generator | None = None,
) -> float:
    """Learn from a rollout; return the mean loss.

    Args:
        agent: Who learns; it is changed.
        optimizer: Changes the weights.
        rollout: What it has lived through.
        settings: How it learns.
        generator: Where the order of environments comes from.
    """
    losses = []
    count = rollout.actions.shape[1]
    for _ in range(settings.epochs):
        order = torch.randperm(count, generator=generator)
        for some in order.split(settings.group):
            loss = ppo_loss(agent, rollout, episodes_of(rollout.starts, some), settings)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.largest_gradient)
            optimizer.step()
            losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


def ppo_loss(agent: Agent, rollout: Rollout, episodes: Episodes, settings: PPO) -> Tensor:
    """Return the loss of some episodes: clipped surrogate, critic's error, entropy."""
    at = (episodes.frames, episodes.environments)
    inside = episodes.inside
    seen = agent.features(rollout.views[at][inside])
    padded = seen.new_zeros(*inside.shape, seen.shape[1])
    padded[inside] = seen
    remembered, _ = agent.memory(padded, _first_states(agent, rollout, episodes), episodes.lengths)
    chances, value = agent.judge(remembered[inside], seen)
    actions, before, advantages, returns = (
        part[at][inside]
        for part in (rollout.actions, rollout.chances, rollout.advantages, rollout.returns)
    )
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (chances.gather(1, actions.unsqueeze(1)).squeeze(1) - before).exp()
    limited = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    surrogate = torch.minimum(ratio * advantages, limited * advantages).mean()
    undecided = -(chances.exp() * chances).sum(1).mean()
    error = (value - returns).square().mean()
    return settings.value * error - surrogate - settings.entropy * undecided


def _first_states(agent: Agent, rollout: Rollout, episodes: Episodes) -> Any:
    """Return the memory with which each episode begins."""
    state = rollout.state
    if isinstance(state, Tensor):
        chosen: Any = state[:, episodes.environments]
    else:
        chosen = tuple(part[:, episodes.environments] for part in state)
    return agent.memory.restart(chosen, episodes.fresh)
