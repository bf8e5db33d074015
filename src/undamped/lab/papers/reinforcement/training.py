"""Training an agent from the first frame to the last, with a place to go on from.

Whatever is random in a rollout is a function of the seed and the rollout's number. Environments
cannot be written down, so that at every checkpoint they begin new episodes; then a training that
was stopped ends with the same numbers as one that was not.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undamped._base.files import write_json
from undamped.lab.papers.reinforcement.environments import Environments
from undamped.lab.papers.reinforcement.policy import Agent
from undamped.lab.papers.reinforcement.ppo import PPO, learn
from undamped.lab.papers.reinforcement.rollout import Life, collect
from undamped.lab.training.checkpoint import Checkpoint, load_checkpoint, restore, save_checkpoint
from undamped.lab.training.progress import Progress

LAST_EPISODES = 100
"""The mean return is that of so many last episodes."""
CHECKPOINT_EVERY = 10
TRAINING, TESTING = 0, 1
"""What a seed is for."""


@dataclass(frozen=True)
class Plan:
    """What is trained, where and how.

    Args:
        environment: Of MiniGrid, without "MiniGrid-" and version.
        network: Registry name of the memory.
        options: Its options.
        frames: How many steps of all environments together.
        copies: How many environments side by side.
        rollout: Frames of each between two rounds of learning.
        ppo: How the agent learns.
        seed: Where all random numbers come from.
    """

    environment: str
    network: str
    options: dict[str, Any]
    frames: int
    copies: int
    rollout: int
    ppo: PPO
    seed: int

    @property
    def rounds(self) -> int:
        """How many rollouts there are."""
        return -(-self.frames // (self.copies * self.rollout))

    @property
    def folder(self) -> str:
        """A name that no other plan has."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"minigrid-{self.environment}-{self.network}-{digest[:8]}"


@dataclass(frozen=True)
class Learnt:
    """A trained agent.

    Args:
        plan: How it was trained.
        agent: The agent.
        frames: Frames after each rollout.
        returns: The mean return of the last episodes then.
        cpu_seconds: How long training took, of all threads.
        parameters: How many the agent has.
    """

    plan: Plan
    agent: Agent
    frames: list[int]
    returns: list[float]
    cpu_seconds: float
    parameters: int


def train(plan: Plan, out: str | Path, tell: Callable[[str], None] | None = None) -> Learnt:
    """Train an agent, or go on with it, or take it if it is there already.

    Args:
        plan: What to do.
        out: The folder in which the training has a folder of its own.
        tell: Told how it goes.
    """
    environments = Environments(plan.environment, plan.copies)
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        agent = Agent(plan.network, environments.actions, **plan.options)
    optimizer = torch.optim.Adam(agent.parameters(), plan.ppo.learning_rate)
    folder = Path(out) / plan.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", asdict(plan))
    place, progress = folder / "checkpoint.safetensors", Progress()
    lately: list[float] = []
    if place.exists():
        checkpoint = load_checkpoint(place)
        restore(checkpoint, agent, optimizer, str(place))
        progress = checkpoint.progress
        kept = checkpoint.carried[0] if checkpoint.carried else None
        lately = [] if kept is None else kept[0].tolist()
    clock = time.process_time() - progress.cpu_seconds
    life: Life | None = None
    while progress.step < plan.rounds:
        if life is None:
            life = Life.begin(agent, environments, [plan.seed, TRAINING, progress.step])
        generator = _generator(plan.seed, progress.step)
        rollout, finished = collect(agent, environments, life, plan.rollout, generator)
        learn(agent, optimizer, rollout, plan.ppo, generator)
        progress.step += 1
        lately = [*lately, *finished][-LAST_EPISODES:]
        frames = progress.step * plan.copies * plan.rollout
        mean = float(np.mean(lately)) if lately else 0.0
        progress.rows.append({"frames": frames, "return": mean})
        if tell is not None:
            tell(f"{100 * progress.step / plan.rounds:.0f} %  mean return {mean:.2f}")
        if progress.step % CHECKPOINT_EVERY == 0 or progress.step == plan.rounds:
            progress.cpu_seconds = time.process_time() - clock
            last = (torch.tensor(lately, dtype=torch.float64),)
            save_checkpoint(
                place,
                Checkpoint(
                    agent.state_dict(), optimizer.state_dict()["state"], progress, {}, [last]
                ),
            )
            life = None
    return Learnt(
        plan,
        agent,
        [int(row["frames"]) for row in progress.rows],
        [row["return"] for row in progress.rows],
        progress.cpu_seconds,
        sum(parameter.numel() for parameter in agent.parameters()),
    )


def play(agent: Agent, environment: str, episodes: int, copies: int, seed: int) -> float:
    """Return the mean return of an agent in new episodes.

    Args:
        agent: The agent.
        environment: Where it plays.
        episodes: How many episodes are counted: the first of every copy, then the second, …
        copies: How many environments side by side.
        seed: Where all random numbers come from.
    """
    environments = Environments(environment, copies)
    life = Life.begin(agent, environments, [seed, TESTING])
    generator = _generator(seed, -1)
    returns: list[list[float]] = [[] for _ in range(copies)]
    wanted = -(-episodes // copies)
    while any(len(own) < wanted for own in returns):
        with torch.no_grad():
            chances, _, state = agent.step(life.view, life.state)
        actions = torch.multinomial(chances.exp(), 1, generator=generator).squeeze(1)
        life.view, rewards, ended = environments.step(actions)
        earned = life.earned + rewards
        for own, value, end in zip(returns, earned.tolist(), ended.tolist(), strict=True):
            if end and len(own) < wanted:
                own.append(value)
        life.earned = earned * (1 - ended)
        life.state = agent.memory.restart(state, ended)
    return float(np.mean([value for own in returns for value in own]))


def _generator(seed: int, number: int) -> torch.Generator:
    words = np.random.SeedSequence([seed, number + 1]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
