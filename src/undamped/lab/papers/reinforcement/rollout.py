"""Rollouts of agents, split into episodes that a network reads in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.lab.papers.reinforcement.environments import Environments, View, stacked
from undamped.lab.papers.reinforcement.policy import Agent

DISCOUNT, TRACE = 0.99, 0.95
"""Discount factor γ, and λ of the generalised advantage estimate."""


@dataclass(frozen=True)
class Rollout:
    """Some frames of all environments, (frames, environments) each.

    Args:
        views: Observations.
        actions: Actions.
        log_probs: Log-probabilities of the actions.
        advantages: Generalised advantages.
        returns: Estimated returns.
        starts: 1 where an episode starts with this frame.
        state: The memory before the first frame.
    """

    views: View
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    starts: Tensor
    state: Any


@dataclass
class Progression:
    """The present state of all environments.

    Args:
        view: Observations.
        state: The memory.
        starts: 1 where an episode starts now.
        returns: Rewards of the present episodes until now.
    """

    view: View
    state: Any
    starts: Tensor
    returns: Tensor

    @classmethod
    def start(cls, agent: Agent, environments: Environments, seed: list[int]) -> Progression:
        """Start new episodes in all environments, with an empty memory."""
        view = environments.start(seed)
        count = len(view.words)
        state = agent.memory.initial_state(count)
        return cls(view, state, torch.ones(count), torch.zeros(count))


@torch.no_grad()
def collect(
    agent: Agent,
    environments: Environments,
    current: Progression,
    frames: int,
    generator: torch.Generator | None = None,
) -> tuple[Rollout, list[float]]:
    """Act for some frames; return them, and the returns of the episodes that ended.

    Args:
        agent: The agent.
        environments: Its environments.
        current: The present state; it is changed.
        frames: Number of frames.
        generator: Source of random actions.
    """
    first = current.state
    rows, views, finished = [], [], []
    for _ in range(frames):
        all_log_probs, value, state = agent.step(current.view, current.state)
        actions = torch.multinomial(all_log_probs.exp(), 1, generator=generator)
        log_probs = all_log_probs.gather(1, actions).squeeze(1)
        view, rewards, ended = environments.step(actions.squeeze(1))
        views.append(current.view)
        rows.append((actions.squeeze(1), log_probs, value, rewards, ended, current.starts))
        returns = current.returns + rewards
        finished += returns[ended > 0].tolist()
        current.view, current.starts, current.returns = view, ended, returns * (1 - ended)
        current.state = agent.memory.restart(state, ended)
    actions, log_probs, values, rewards, ends, starts = map(torch.stack, zip(*rows, strict=True))
    _, last, _ = agent.step(current.view, current.state)
    advantages = _advantages(values, last, rewards, ends)
    rollout = Rollout(
        stacked(views), actions, log_probs, advantages, advantages + values, starts, first
    )
    return rollout, finished


def _advantages(values: Tensor, last: Tensor, rewards: Tensor, ends: Tensor) -> Tensor:
    """Return the generalised advantages (frames, environments)."""
    following = torch.cat((values[1:], last.unsqueeze(0)))
    errors = rewards + DISCOUNT * following * (1 - ends) - values
    advantages, advantage = torch.empty_like(values), torch.zeros_like(last)
    for t in reversed(range(len(values))):
        advantage = errors[t] + DISCOUNT * TRACE * (1 - ends[t]) * advantage
        advantages[t] = advantage
    return advantages


@dataclass(frozen=True)
class Episodes:
    """Segments of a rollout within one episode, padded to the same length.

    Args:
        frames: (time, segments), indices of frames in the rollout, 0 in the padding.
        environments: (segments,), indices of environments.
        lengths: (segments,).
        fresh: (segments,), 1 where the memory is empty at the start.
    """

    frames: Tensor
    environments: Tensor
    lengths: Tensor
    fresh: Tensor

    @property
    def inside(self) -> Tensor:
        """(time, segments), whether a frame belongs to a segment."""
        return torch.arange(len(self.frames)).unsqueeze(1) < self.lengths


def episodes_of(starts: Tensor, environments: Tensor) -> Episodes:
    """Split the frames of some environments where episodes start.

    Args:
        starts: (frames, all environments).
        environments: Indices of environments.
    """
    frames = len(starts)
    segments = [
        (int(number), begin, end, bool(starts[begin, number]))
        for number in environments
        for begin, end in _segments(starts[:, number].nonzero().squeeze(1).tolist(), frames)
    ]
    lengths = torch.tensor([end - begin for _, begin, end, _ in segments])
    steps = torch.arange(int(lengths.max())).unsqueeze(1)
    begins = torch.tensor([begin for _, begin, _, _ in segments])
    return Episodes(
        frames=torch.where(steps < lengths, begins + steps, 0),
        environments=torch.tensor([number for number, *_ in segments]),
        lengths=lengths,
        fresh=torch.tensor([float(fresh) for *_, fresh in segments]),
    )


def _segments(starts: list[int], frames: int) -> list[tuple[int, int]]:
    begins = sorted({0, *starts})
    return list(zip(begins, [*begins[1:], frames], strict=True))
