"""Training of an agent by proximal policy optimisation, with checkpoints.

The method is by Schulman et al., 2017, here with a recurrent memory. All random numbers of a
rollout are a function of the seed and the number of the rollout. Environments cannot be stored, so
that new episodes start at every checkpoint; a resumed training ends with the same numbers as an
uninterrupted one.
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
from torch import Tensor, nn

from undamped.lab.files import write_json
from undamped.lab.papers.reinforcement.rollout import (
    Agent,
    Environments,
    Episodes,
    Progression,
    Rollout,
    collect,
    episodes_of,
)
from undamped.lab.report.table import Progress as Callback
from undamped.lab.report.table import silent
from undamped.lab.training.checkpoint import Checkpoint, load_checkpoint, restore, save_checkpoint
from undamped.lab.training.progress import Progress

LAST_EPISODES = 100
"""Number of episodes of the mean return."""
TRAINING, TESTING = 0, 1
"""Purposes of a seed."""


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


def train(
    plan: Plan, out: str | Path, report: Callback = silent, *, checkpoint_every: int = 10
) -> TrainedAgent:
    """Train an agent, resume its training, or load it if training is finished.

    Args:
        plan: The settings.
        out: The folder in which the training has a folder.
        report: Called with a line of text after every rollout.
        checkpoint_every: Rollouts from one checkpoint to the next.
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
        if progress.step % checkpoint_every == 0 or progress.step == plan.rounds:
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
