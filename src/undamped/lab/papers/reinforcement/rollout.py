"""What agents live through, cut into episodes that a network takes in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.lab.papers.reinforcement.environments import Environments, View, stacked
from undamped.lab.papers.reinforcement.policy import Agent

DISCOUNT, TRACE = 0.99, 0.95
"""How much less a reward of the next step counts, and λ of the generalised advantage."""


@dataclass(frozen=True)
class Rollout:
    """Some frames of all environments, (frames, environments) each.

    Args:
        views: What was seen.
        actions: What was done.
        chances: Its log-probability then.
        advantages: How much better it went than expected.
        returns: What was earned from there on.
        starts: One where an episode began with this frame.
        state: The memory before the first frame.
    """

    views: View
    actions: Tensor
    chances: Tensor
    advantages: Tensor
    returns: Tensor
    starts: Tensor
    state: Any


@dataclass
class Life:
    """Where all environments stand.

    Args:
        view: What is seen.
        state: The memory.
        begun: One where an episode begins now.
        earned: What the present episodes have earned.
    """

    view: View
    state: Any
    begun: Tensor
    earned: Tensor

    @classmethod
    def begin(cls, agent: Agent, environments: Environments, seed: list[int]) -> Life:
        """Start new episodes everywhere, with an empty memory."""
        view = environments.start(seed)
        count = len(view.words)
        state = agent.memory.initial_state(count)
        return cls(view, state, torch.ones(count), torch.zeros(count))


@torch.no_grad()
def collect(
    agent: Agent,
    environments: Environments,
    life: Life,
    frames: int,
    generator: torch.Generator | None = None,
) -> tuple[Rollout, list[float]]:
    """Live for some frames; return them, and what the episodes that ended have earned.

    Args:
        agent: Who acts.
        environments: Where.
        life: Where they stand; it is changed.
        frames: For how long.
        generator: Where actions come from.
    """
    first = life.state
    rows, views, finished = [], [], []
    for _ in range(frames):
        chances, value, state = agent.step(life.view, life.state)
        actions = torch.multinomial(chances.exp(), 1, generator=generator)
        taken = chances.gather(1, actions).squeeze(1)
        view, rewards, ended = environments.step(actions.squeeze(1))
        views.append(life.view)
        rows.append((actions.squeeze(1), taken, value, rewards, ended, life.begun))
        earned = life.earned + rewards
        finished += earned[ended > 0].tolist()
        life.view, life.begun, life.earned = view, ended, earned * (1 - ended)
        life.state = agent.memory.restart(state, ended)
    actions, taken, values, rewards, ends, starts = map(torch.stack, zip(*rows, strict=True))
    _, last, _ = agent.step(life.view, life.state)
    advantages = _advantages(values, last, rewards, ends)
    rollout = Rollout(
        stacked(views), actions, taken, advantages, advantages + values, starts, first
    )
    return rollout, finished


def _advantages(values: Tensor, last: Tensor, rewards: Tensor, ends: Tensor) -> Tensor:
    """Return the generalised advantages (frames, environments)."""
    following = torch.cat((values[1:], last.unsqueeze(0)))
    errors = rewards + DISCOUNT * following * (1 - ends) - values
    found, carried = torch.empty_like(values), torch.zeros_like(last)
    for t in reversed(range(len(values))):
        carried = errors[t] + DISCOUNT * TRACE * (1 - ends[t]) * carried
        found[t] = carried
    return found


@dataclass(frozen=True)
class Episodes:
    """Stretches without an end in between, one beside the other.

    Args:
        frames: (time, stretches), which frame of the rollout, and 0 beyond a stretch's end.
        environments: (stretches,), whose.
        lengths: (stretches,).
        fresh: (stretches,), one where the memory is empty at the beginning.
    """

    frames: Tensor
    environments: Tensor
    lengths: Tensor
    fresh: Tensor

    @property
    def inside(self) -> Tensor:
        """(time, stretches), whether a frame belongs to a stretch."""
        return torch.arange(len(self.frames)).unsqueeze(1) < self.lengths


def episodes_of(starts: Tensor, environments: Tensor) -> Episodes:
    """Cut the frames of some environments where episodes begin.

    Args:
        starts: (frames, all environments).
        environments: Which ones.
    """
    frames = len(starts)
    cuts = [
        (int(one), begin, end, bool(starts[begin, one]))
        for one in environments
        for begin, end in _stretches(starts[:, one].nonzero().squeeze(1).tolist(), frames)
    ]
    lengths = torch.tensor([end - begin for _, begin, end, _ in cuts])
    steps = torch.arange(int(lengths.max())).unsqueeze(1)
    begins = torch.tensor([begin for _, begin, _, _ in cuts])
    return Episodes(
        frames=torch.where(steps < lengths, begins + steps, 0),
        environments=torch.tensor([one for one, *_ in cuts]),
        lengths=lengths,
        fresh=torch.tensor([float(fresh) for *_, fresh in cuts]),
    )


def _stretches(begins: list[int], frames: int) -> list[tuple[int, int]]:
    places = sorted({0, *begins})
    return list(zip(places, [*places[1:], frames], strict=True))
