"""Proximal policy optimisation (Schulman et al., 2017) with a recurrent memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undamped.lab.papers.reinforcement.rollout import Agent, Episodes, Rollout, episodes_of


@dataclass(frozen=True)
class PPO:
    """Hyperparameters of PPO; their names are part of the hash of a training folder.

    Args:
        learning_rate: Learning rate of Adam.
        epochs: Passes over every rollout.
        group: Environments per update.
        clip: Largest change of the probability ratio of an action.
        entropy: Weight of the entropy of the policy.
        value: Weight of the error of the critic.
        largest_gradient: Largest norm of the gradient.
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
        agent: The agent; its weights are changed.
        optimizer: The optimiser of its weights.
        rollout: Frames of all environments.
        settings: Hyperparameters.
        generator: Source of the order of environments.
    """
    losses = []
    count = rollout.actions.shape[1]
    for _ in range(settings.epochs):
        order = torch.randperm(count, generator=generator)
        for environments in order.split(settings.group):
            episodes = episodes_of(rollout.starts, environments)
            loss = ppo_loss(agent, rollout, episodes, settings)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.largest_gradient)
            optimizer.step()
            losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


def ppo_loss(agent: Agent, rollout: Rollout, episodes: Episodes, settings: PPO) -> Tensor:
    """Return the loss of some episodes: clipped surrogate, error of the critic, entropy."""
    index = (episodes.frames, episodes.environments)
    inside = episodes.inside
    features = agent.features(rollout.views[index][inside])
    padded = features.new_zeros(*inside.shape, features.shape[1])
    padded[inside] = features
    memories, _ = agent.memory(padded, _first_states(agent, rollout, episodes), episodes.lengths)
    log_probs, value = agent.evaluate(memories[inside], features)
    actions, old_log_probs, advantages, returns = (
        tensor[index][inside]
        for tensor in (rollout.actions, rollout.log_probs, rollout.advantages, rollout.returns)
    )
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (log_probs.gather(1, actions.unsqueeze(1)).squeeze(1) - old_log_probs).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages).mean()
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    error = (value - returns).square().mean()
    return settings.value * error - surrogate - settings.entropy * entropy


def _first_states(agent: Agent, rollout: Rollout, episodes: Episodes) -> Any:
    """Return the initial memory of each episode."""
    state = rollout.state
    if isinstance(state, Tensor):
        initial: Any = state[:, episodes.environments]
    else:
        initial = tuple(tensor[:, episodes.environments] for tensor in state)
    return agent.memory.restart(initial, episodes.fresh)
