"""Agents with different memories in MiniGrid: table B.1.

An agent observes seven by seven cells in front of it and has to remember the rest. It learns by PPO
in a small environment and is then tested in a larger one.

    undamped reproduce minigrid environment=MemoryS7 frames=1000000 --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Unpack

from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeInt, PositiveFloat, PositiveInt, options_of
from undamped._base.registry import models
from undamped.lab.papers.runs import SeedOptions, experiment, prefixed
from undamped.lab.report.charts import draw_lines, label, panels
from undamped.lab.report.table import Report, Table

LARGER = {
    "RedBlueDoors-6x6": "RedBlueDoors-8x8",
    "GoToObject-6x6-N2": "GoToObject-8x8-N2",
    "MemoryS7": "MemoryS13",
    "GoToDoor-5x5": "GoToDoor-8x8",
    "Fetch-5x5-N2": "Fetch-8x8-N3",
    "DoorKey-5x5": "DoorKey-16x16",
}
"""The environment in which agents are tested after training."""
PAPER = {
    "RedBlueDoors-6x6": {"memlstm": (0.97, 0.95), "rellstm": (0.97, 0.95)},
    "GoToObject-6x6-N2": {"memlstm": (0.85, 0.66), "rellstm": (0.84, 0.74)},
    "MemoryS7": {"memlstm": (0.40, 0.24), "rellstm": (0.94, 0.30)},
    "GoToDoor-5x5": {"memlstm": (0.17, 0.11), "rellstm": (0.25, 0.15)},
    "Fetch-5x5-N2": {"memlstm": (0.42, 0.44), "rellstm": (0.50, 0.45)},
    "DoorKey-5x5": {"memlstm": (0.94, 0.31), "rellstm": (0.93, 0.44)},
}
"""Table B.1: mean rewards in the small and in the larger environment after 5 million frames."""


class AgentOptions(SeedOptions):
    """Options of the agents and of PPO."""

    units: Annotated[PositiveInt, Default(64, "Hidden units of each network.")]
    recent: Annotated[
        PositiveInt, Default(5, "The number ν of last states that relrnn and rellstm attend to.")
    ]
    relevant: Annotated[NonNegativeInt, Default(5, "The number ρ of relevant states.")]
    copies: Annotated[PositiveInt, Default(16, "Environments that run in parallel.")]
    rollout: Annotated[
        PositiveInt, Default(128, "Frames of each environment between two rounds of learning.")
    ]
    learning_rate: Annotated[PositiveFloat, Default(1e-3, "Learning rate of Adam.")]


@dataclass(frozen=True)
class AgentScores:
    """One agent after training.

    Args:
        network: Its memory.
        returns: Its mean return in new episodes, by environment.
        frames: Frames after each round of training.
        curve: The mean return of the last episodes after each round.
        cpu_seconds: CPU time of training, all threads together.
        parameters: Number of parameters of the agent.
    """

    network: str
    returns: dict[str, float]
    frames: list[int]
    curve: list[float]
    cpu_seconds: float
    parameters: int

    def frames_to(self, goal: float) -> int | None:
        """Return the number of frames after which the mean return was `goal`, or None."""
        pairs = zip(self.frames, self.curve, strict=True)
        return next((frames for frames, value in pairs if value >= goal), None)


@experiment("minigrid")
def run(
    *,
    environment: str = "DoorKey-5x5",
    networks: Sequence[str] = ("lstm", "memlstm", "rellstm"),
    frames: PositiveInt = 300_000,
    tests: PositiveInt = 96,
    **agent: Unpack[AgentOptions],
) -> Report:
    """Agents with different memories that find doors, keys and objects.

    Args:
        environment: Of MiniGrid, without "MiniGrid-" and version: DoorKey-5x5, MemoryS7, …
        networks: Registry names of recurrent networks.
        frames: Steps of all environments together.
        tests: New episodes in which an agent is tested.
        agent: Agents, PPO, seed, folder and progress; see `AgentOptions`.

    Example:
        >>> result = run(environment="DoorKey-5x5", networks=("rellstm",))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
        J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov. Proximal policy optimization
        algorithms. 2017.
    """
    from undamped.lab.papers.reinforcement.rollout import Environments
    from undamped.lab.papers.reinforcement.training import PPO, Plan, play, train

    environments = [environment, *([LARGER[environment]] if environment in LARGER else [])]
    for name in environments:
        Environments(name, 1)  # raises for an unknown name before an hour of training
    for name in networks:
        _check_network(name)
    copies, seed = agent["copies"], agent["seed"]
    ppo = PPO(learning_rate=agent["learning_rate"], group=max(1, copies // 4))
    agents = []
    for name in networks:
        declared = options_of(models[name])
        model_options = {"hidden_size": agent["units"]}
        model_options |= {key: agent[key] for key in ("recent", "relevant") if key in declared}
        plan = Plan(environment, name, model_options, frames, copies, agent["rollout"], ppo, seed)
        report = prefixed(agent["progress"], f"{name} in {environment}")
        trained = train(plan, agent["out"], report)
        returns = {}
        for test_environment in environments:
            report(f"test in {test_environment}")
            returns[test_environment] = play(trained.agent, test_environment, tests, copies, seed)
        agents.append(
            AgentScores(
                name,
                returns,
                trained.frames,
                trained.returns,
                trained.cpu_seconds,
                trained.parameters,
            )
        )
    paper = PAPER.get(environment, {})
    title = (
        f"Mean return in {tests} new episodes after {frames:,} frames of {environment}, seed "
        f"{seed}; in brackets the numbers of the thesis, after 5,000,000 frames."
    )
    header = ("memory", "parameters", *environments, "frames to 0.9", "CPU minutes")
    return Report(
        agents,
        [Table(header, [_row(scores, paper.get(scores.network)) for scores in agents], title)],
        {f"minigrid-{environment}": lambda: _figure(environment, agents)},
        {"printed": paper},
    )


def _row(scores: AgentScores, paper: tuple[float, float] | None) -> tuple[str, ...]:
    cells = [
        f"{value:.2f}" + (f" ({paper[index]:.2f})" if paper else "")
        for index, value in enumerate(scores.returns.values())
    ]
    goal = scores.frames_to(0.9)
    frames = "not reached" if goal is None else f"{goal:,}"
    minutes = f"{scores.cpu_seconds / 60:.1f}"
    return (scores.network, f"{scores.parameters:,}", *cells, frames, minutes)


def _check_network(name: str) -> None:
    from undamped.nn.recurrent import Recurrent

    kind = models[name]
    if not (isinstance(kind, type) and issubclass(kind, Recurrent)):
        raise OptionError(
            f"networks must be recurrent networks, got '{name}'. Use lstm, gru, rellstm or "
            "unicornn, for example."
        )


def _figure(environment: str, agents: Sequence[AgentScores]) -> Any:
    figure, (axes,) = panels(7, 4)
    draw_lines(axes, {agent.network: (agent.frames, agent.curve) for agent in agents})
    axes.set_ylim(0, 1)
    title = f"{environment}: earlier and higher is better"
    label(axes, "frames", "mean return of the last 100 episodes", title)
    return figure
