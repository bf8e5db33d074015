"""MiniGrid environments side by side, and what an agent sees of them as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import MissingPackageError, explain
from undamped._base.options import unknown_name

KINDS, COLOURS, STATES = 11, 6, 3
"""How many kinds of objects, colours and states of doors a cell of the view can have."""
CHANNELS = KINDS + COLOURS + STATES
WORDS = KINDS + COLOURS
"""Words of a mission that say something: objects and colours."""


@dataclass(frozen=True)
class View:
    """What agents see.

    Args:
        cells: (…, CHANNELS, height, width), one-hot kinds, colours and states.
        words: (…, WORDS), which of the known words their mission has.
    """

    cells: Tensor
    words: Tensor

    def __getitem__(self, index: Any) -> View:
        """Return some of them."""
        return View(self.cells[index], self.words[index])


def stacked(views: Sequence[View]) -> View:
    """Put views one above the other."""
    return View(torch.stack([v.cells for v in views]), torch.stack([v.words for v in views]))


class Environments:
    """Several copies of a MiniGrid environment; one that has ended starts again by itself.

    Args:
        name: Its id without "MiniGrid-" and version, for example "DoorKey-5x5".
        count: How many copies.
    """

    def __init__(self, name: str, count: int) -> None:
        if find_spec("minigrid") is None or find_spec("gymnasium") is None:
            raise MissingPackageError(
                explain(
                    "minigrid",
                    expected="gymnasium and minigrid",
                    got="one of them not installed",
                    remedy="Install them with: pip install 'undamped[minigrid]'",
                ),
                name="minigrid",
            )
        import gymnasium
        import minigrid  # noqa: F401 (registers its environments)

        known = [
            one.removeprefix("MiniGrid-").removesuffix("-v0")
            for one in gymnasium.registry
            if one.startswith("MiniGrid-") and one.endswith("-v0")
        ]
        if name not in known:
            raise unknown_name("environment of MiniGrid", name, known)
        self._all = [gymnasium.make(f"MiniGrid-{name}-v0") for _ in range(count)]
        self._colours, self._kinds = _vocabulary()
        self.actions = int(self._all[0].action_space.n)  # type: ignore[attr-defined]

    def start(self, seed: Sequence[int]) -> View:
        """Begin new episodes; what is random from here on is a function of the seed.

        Args:
            seed: Whole numbers.
        """
        states = np.random.SeedSequence(list(seed)).generate_state(len(self._all))
        pairs = zip(self._all, states, strict=True)
        return self._view([one.reset(seed=int(state))[0] for one, state in pairs])

    def step(self, actions: Tensor) -> tuple[View, Tensor, Tensor]:
        """Act; return what is seen then, rewards, and which episodes have ended.

        An episode that has run out of time has ended, as in the programs of this field.
        """
        seen, rewards, ends = [], [], []
        for one, action in zip(self._all, actions.tolist(), strict=True):
            observed, reward, done, late, _ = one.step(action)
            ended = done or late
            seen.append(one.reset()[0] if ended else observed)
            rewards.append(float(reward))
            ends.append(float(ended))
        return self._view(seen), torch.tensor(rewards), torch.tensor(ends)

    def _view(self, observed: list[dict[str, Any]]) -> View:
        pictures = torch.from_numpy(np.stack([one["image"] for one in observed])).long()
        sizes = (KINDS, COLOURS, STATES)
        cells = torch.cat(
            [
                torch.nn.functional.one_hot(pictures[..., i].clamp_max(size - 1), size)
                for i, size in enumerate(sizes)
            ],
            dim=-1,
        )
        words = torch.tensor([self._words(one["mission"]) for one in observed])
        return View(cells.permute(0, 3, 1, 2).float(), words)

    def _words(self, mission: str) -> list[float]:
        said = set(mission.replace(",", " ").split())
        return [float(word in said) for word in (*self._kinds, *self._colours)]


def _vocabulary() -> tuple[list[str], list[str]]:
    from minigrid.core.constants import COLOR_NAMES, OBJECT_TO_IDX

    return list(COLOR_NAMES), list(OBJECT_TO_IDX)
