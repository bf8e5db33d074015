"""MiniGrid environments in parallel, and their observations as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import MissingPackageError
from undamped._base.options import unknown_name

KINDS, COLOURS, STATES = 11, 6, 3
"""Number of kinds of objects, colours and states of doors of a cell."""
CHANNELS = KINDS + COLOURS + STATES
WORDS = KINDS + COLOURS
"""Informative words of a mission: objects and colours."""


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

        names = [
            key.removeprefix("MiniGrid-").removesuffix("-v0")
            for key in gymnasium.registry
            if key.startswith("MiniGrid-") and key.endswith("-v0")
        ]
        if name not in names:
            raise unknown_name("environment of MiniGrid", name, names)
        self._all = [gymnasium.make(f"MiniGrid-{name}-v0") for _ in range(count)]
        self._colours, self._kinds = _vocabulary()
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
        words = torch.tensor([self._words(each["mission"]) for each in observations])
        return View(cells.permute(0, 3, 1, 2).float(), words)

    def _words(self, mission: str) -> list[float]:
        present = set(mission.replace(",", " ").split())
        return [float(word in present) for word in (*self._kinds, *self._colours)]


def _vocabulary() -> tuple[list[str], list[str]]:
    from minigrid.core.constants import COLOR_NAMES, OBJECT_TO_IDX

    return list(COLOR_NAMES), list(OBJECT_TO_IDX)
