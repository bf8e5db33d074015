"""Training of an agent, with checkpoints from which it is resumed.

All random numbers of a rollout are a function of the seed and the number of the rollout.
Environments cannot be stored, so that new episodes start at every checkpoint; a resumed training
ends with the same numbers as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undamped._base.files import write_json
from undamped.lab.papers.reinforcement.ppo import PPO, learn
from undamped.lab.papers.reinforcement.rollout import Agent, Environments, Progression, collect
from undamped.lab.report.table import Progress as Callback
from undamped.lab.report.table import silent
from undamped.lab.training.checkpoint import Checkpoint, load_checkpoint, restore, save_checkpoint
from undamped.lab.training.progress import Progress

LAST_EPISODES = 100
"""Number of episodes of the mean return."""
CHECKPOINT_EVERY = 10
TRAINING, TESTING = 0, 1
"""Purposes of a seed."""


@dataclass(frozen=True)
class Plan:
    """The settings of a training; their names are part of the hash of its folder.

    Args:
        environment: Of MiniGrid, without "MiniGrid-" and version.
        network: Registry name of the memory.
        options: Its options.
        frames: Steps of all environments together.
        copies: Number of environments.
        rollout: Frames of each between two rounds of learning.
        ppo: Hyperparameters of PPO.
        seed: Seed of all random numbers.
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
        """Number of rollouts."""
        return -(-self.frames // (self.copies * self.rollout))

    @property
    def folder(self) -> str:
        """A unique name of the plan."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"minigrid-{self.environment}-{self.network}-{digest[:8]}"


@dataclass(frozen=True)
class TrainedAgent:
    """A trained agent.

    Args:
        plan: The settings of the training.
        agent: The agent.
        frames: Frames after each rollout.
        returns: The mean return of the last episodes after each rollout.
        cpu_seconds: CPU time of training, all threads together.
        parameters: Number of parameters of the agent.
    """

    plan: Plan
    agent: Agent
    frames: list[int]
    returns: list[float]
    cpu_seconds: float
    parameters: int


def train(plan: Plan, out: str | Path, report: Callback = silent) -> TrainedAgent:
    """Train an agent, resume its training, or load it if training is finished.

    Args:
        plan: The settings.
        out: The folder in which the training has a folder.
        report: Called with a line of text after every rollout.
    """
    environments = Environments(plan.environment, plan.copies)
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        agent = Agent(plan.network, environments.actions, **plan.options)
    optimizer = torch.optim.Adam(agent.parameters(), plan.ppo.learning_rate)
    folder = Path(out) / plan.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", asdict(plan))
    path, progress = folder / "checkpoint.safetensors", Progress()
    recent: list[float] = []
    if path.exists():
        checkpoint = load_checkpoint(path)
        restore(checkpoint, agent, optimizer, str(path))
        progress = checkpoint.progress
        stored = checkpoint.carried[0] if checkpoint.carried else None
        recent = [] if stored is None else stored[0].tolist()
    clock = time.process_time() - progress.cpu_seconds
    current: Progression | None = None
    while progress.step < plan.rounds:
        if current is None:
            current = Progression.start(agent, environments, [plan.seed, TRAINING, progress.step])
        generator = _generator(plan.seed, progress.step)
        rollout, finished = collect(agent, environments, current, plan.rollout, generator)
        learn(agent, optimizer, rollout, plan.ppo, generator)
        progress.step += 1
        recent = [*recent, *finished][-LAST_EPISODES:]
        frames = progress.step * plan.copies * plan.rollout
        mean = float(np.mean(recent)) if recent else 0.0
        progress.rows.append({"frames": frames, "return": mean})
        report(f"{100 * progress.step / plan.rounds:.0f} %  mean return {mean:.2f}")
        if progress.step % CHECKPOINT_EVERY == 0 or progress.step == plan.rounds:
            progress.cpu_seconds = time.process_time() - clock
            last = (torch.tensor(recent, dtype=torch.float64),)
            save_checkpoint(
                path,
                Checkpoint(
                    agent.state_dict(), optimizer.state_dict()["state"], progress, {}, [last]
                ),
            )
            current = None
    return TrainedAgent(
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
        environment: The name of the environment.
        episodes: Number of episodes: the first of every copy, then the second, …
        copies: Number of environments.
        seed: Seed of all random numbers.
    """
    environments = Environments(environment, copies)
    current = Progression.start(agent, environments, [seed, TESTING])
    generator = _generator(seed, -1)
    finished: list[list[float]] = [[] for _ in range(copies)]
    count = -(-episodes // copies)
    while any(len(values) < count for values in finished):
        with torch.no_grad():
            log_probs, _, state = agent.step(current.view, current.state)
        actions = torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)
        current.view, rewards, ended = environments.step(actions)
        returns = current.returns + rewards
        for values, value, end in zip(finished, returns.tolist(), ended.tolist(), strict=True):
            if end and len(values) < count:
                values.append(value)
        current.returns = returns * (1 - ended)
        current.state = agent.memory.restart(state, ended)
    return float(np.mean([value for values in finished for value in values]))


def _generator(seed: int, number: int) -> torch.Generator:
    words = np.random.SeedSequence([seed, number + 1]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
