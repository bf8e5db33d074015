"""Agents with a recurrent memory, and their rollouts in parallel MiniGrid environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import MissingPackageError
from undamped._base.options import unknown_name
from undamped._base.registry import models

KINDS, COLOURS, STATES = 11, 6, 3
"""Number of kinds of objects, colours and states of doors of a cell."""
CHANNELS = KINDS + COLOURS + STATES
WORDS = KINDS + COLOURS
"""Informative words of a mission: objects and colours."""

FEATURES = 64
DISCOUNT, TRACE = 0.99, 0.95
"""Discount factor γ, and λ of the generalised advantage estimate."""


@dataclass(frozen=True)
class View:
    """Observations of agents.

    Args:
        cells: (…, CHANNELS, height, width), one-hot kinds, colours and states.
        words: (…, WORDS), 1 for the words of the mission.
    """

    cells: Tensor
    words: Tensor

    def __getitem__(self, index: Any) -> View:
        """Return some of the observations."""
        return View(self.cells[index], self.words[index])


def stacked(views: Sequence[View]) -> View:
    """Stack views along a new first dimension."""
    return View(torch.stack([v.cells for v in views]), torch.stack([v.words for v in views]))


class Environments:
    """Several copies of a MiniGrid environment, which restart when an episode ends.

    Args:
        name: Its id without "MiniGrid-" and version, for example "DoorKey-5x5".
        count: Number of copies.
    """

    def __init__(self, name: str, count: int) -> None:
        if find_spec("minigrid") is None or find_spec("gymnasium") is None:
            raise MissingPackageError(
                "gymnasium or minigrid is not installed. Install them with "
                "pip install 'undamped[minigrid]'.",
                name="minigrid",
            )
        import gymnasium
        import minigrid  # noqa: F401 (registers its environments)
        from minigrid.core import constants

        names = [
            key.removeprefix("MiniGrid-").removesuffix("-v0")
            for key in gymnasium.registry
            if key.startswith("MiniGrid-") and key.endswith("-v0")
        ]
        if name not in names:
            raise unknown_name("environment of MiniGrid", name, names)
        self._all = [gymnasium.make(f"MiniGrid-{name}-v0") for _ in range(count)]
        self._words = (*constants.OBJECT_TO_IDX, *constants.COLOR_NAMES)
        self.actions = int(self._all[0].action_space.n)  # type: ignore[attr-defined]

    def start(self, seed: Sequence[int]) -> View:
        """Start new episodes; all later random numbers are a function of the seed.

        Args:
            seed: Integers.
        """
        states = np.random.SeedSequence(list(seed)).generate_state(len(self._all))
        pairs = zip(self._all, states, strict=True)
        return self._view([world.reset(seed=int(state))[0] for world, state in pairs])

    def step(self, actions: Tensor) -> tuple[View, Tensor, Tensor]:
        """Act; return the next observations, rewards, and which episodes have ended.

        An episode that exceeds its time limit has ended, as usual for this benchmark.
        """
        observations, rewards, ends = [], [], []
        for world, action in zip(self._all, actions.tolist(), strict=True):
            observation, reward, terminated, truncated, _ = world.step(action)
            ended = terminated or truncated
            observations.append(world.reset()[0] if ended else observation)
            rewards.append(float(reward))
            ends.append(float(ended))
        return self._view(observations), torch.tensor(rewards), torch.tensor(ends)

    def _view(self, observations: list[dict[str, Any]]) -> View:
        images = np.stack([observation["image"] for observation in observations])
        codes = torch.from_numpy(images).long()
        sizes = (KINDS, COLOURS, STATES)
        cells = torch.cat(
            [
                torch.nn.functional.one_hot(codes[..., i].clamp_max(size - 1), size)
                for i, size in enumerate(sizes)
            ],
            dim=-1,
        )
        missions = [set(each["mission"].replace(",", " ").split()) for each in observations]
        words = [[float(word in mission) for word in self._words] for mission in missions]
        return View(cells.permute(0, 3, 1, 2).float(), torch.tensor(words))


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
