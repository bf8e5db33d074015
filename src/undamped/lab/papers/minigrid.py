"""Agents with different memories in MiniGrid: table B.1.

An agent sees seven by seven cells in front of it and has to remember the rest. It learns by PPO in
a small environment and is then tried in a larger one.

    undamped reproduce minigrid environment=MemoryS7 frames=1000000 --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import experiments, models

LARGER = {
    "RedBlueDoors-6x6": "RedBlueDoors-8x8",
    "GoToObject-6x6-N2": "GoToObject-8x8-N2",
    "MemoryS7": "MemoryS13",
    "GoToDoor-5x5": "GoToDoor-8x8",
    "Fetch-5x5-N2": "Fetch-8x8-N3",
    "DoorKey-5x5": "DoorKey-16x16",
}
"""The environment in which each is tried afterwards."""
PRINTED = {
    "RedBlueDoors-6x6": {"memlstm": (0.97, 0.95), "rellstm": (0.97, 0.95)},
    "GoToObject-6x6-N2": {"memlstm": (0.85, 0.66), "rellstm": (0.84, 0.74)},
    "MemoryS7": {"memlstm": (0.40, 0.24), "rellstm": (0.94, 0.30)},
    "GoToDoor-5x5": {"memlstm": (0.17, 0.11), "rellstm": (0.25, 0.15)},
    "Fetch-5x5-N2": {"memlstm": (0.42, 0.44), "rellstm": (0.50, 0.45)},
    "DoorKey-5x5": {"memlstm": (0.94, 0.31), "rellstm": (0.93, 0.44)},
}
"""Table B.1: mean rewards in the small and in the larger environment after 5 million frames."""


@dataclass(frozen=True)
class Played:
    """One agent after training.

    Args:
        network: Its memory.
        returns: Its mean return in new episodes, by environment.
        frames: Frames after each round of training.
        curve: The mean return of the last episodes then.
        cpu_seconds: How long training took, of all threads.
        parameters: How many the agent has.
    """

    network: str
    returns: dict[str, float]
    frames: list[int]
    curve: list[float]
    cpu_seconds: float
    parameters: int

    def reached(self, goal: float) -> int | None:
        """Return after how many frames the mean return was `goal`, or None."""
        pairs = zip(self.frames, self.curve, strict=True)
        return next((frames for frames, value in pairs if value >= goal), None)


@dataclass(frozen=True)
class MinigridExperiment:
    """All agents in one environment.

    Args:
        environment: Where they learnt.
        frames: For how many frames.
        tests: In how many new episodes they were tried.
        seed: Where all random numbers came from.
        played: The agents.
    """

    environment: str
    frames: int
    tests: int
    seed: int
    played: tuple[Played, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        own = {**vars(self), "played": [vars(one) for one in self.played]}
        return {**own, "printed": PRINTED.get(self.environment, {})}

    def markdown(self) -> str:
        """Return the table for the documentation."""
        places = list(self.played[0].returns)
        heads = " | ".join(places)
        lines = [
            f"Mean return in {self.tests} new episodes after {self.frames:,} frames of "
            f"{self.environment}, seed {self.seed}; in brackets what the thesis prints, after "
            "5,000,000 frames.",
            "",
            f"| memory | parameters | {heads} | frames to 0.9 | CPU minutes |",
            "|---|---:|" + "---:|" * (len(places) + 2),
        ]
        for one in self.played:
            printed = PRINTED.get(self.environment, {}).get(one.network)
            cells = [
                f"{one.returns[place]:.2f}" + (f" ({printed[i]:.2f})" if printed else "")
                for i, place in enumerate(places)
            ]
            reached = one.reached(0.9)
            frames = "not reached" if reached is None else f"{reached:,}"
            lines.append(
                f"| {one.network} | {one.parameters:,} | {' | '.join(cells)} | {frames} | "
                f"{one.cpu_seconds / 60:.1f} |"
            )
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture of mean returns over frames."""
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for index, one in enumerate(self.played):
            axes.plot(one.frames, one.curve, label=one.network, **line_of(index))
        axes.set_ylim(0, 1)
        axes.set_xlabel("frames")
        axes.set_ylabel("mean return of the last 100 episodes")
        axes.set_title(f"{self.environment}: earlier and higher is better", fontsize=10)
        axes.legend(fontsize="small")
        return {f"minigrid-{self.environment}": figure}


@experiments.register("minigrid")
def run(
    *,
    environment: str = "DoorKey-5x5",
    networks: Sequence[str] = ("lstm", "memlstm", "rellstm"),
    frames: PositiveInt = 300_000,
    units: PositiveInt = 64,
    recent: PositiveInt = 5,
    kept: NonNegativeInt = 5,
    copies: PositiveInt = 16,
    rollout: PositiveInt = 128,
    learning_rate: PositiveFloat = 1e-3,
    tests: PositiveInt = 96,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> MinigridExperiment:
    """Agents with different memories find doors, keys and things they have seen before.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        environment: Of MiniGrid, without "MiniGrid-" and version: DoorKey-5x5, MemoryS7, …
        networks: Registry names of recurrent networks.
        frames: Steps of all environments together.
        units: Hidden units of each network.
        recent: The number ν of last states that relrnn and rellstm attend to.
        kept: The number ρ of relevant ones.
        copies: Environments side by side.
        rollout: Frames of each between two rounds of learning.
        learning_rate: Adam's step size.
        tests: New episodes in which an agent is tried afterwards.
        seed: Where all random numbers come from.
        out: The folder in which every training has a folder.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(environment="DoorKey-5x5", networks=("rellstm",))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
        J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov. Proximal policy optimization
        algorithms. 2017.
    """
    from undamped._base.options import options_of
    from undamped.lab.papers.reinforcement.environments import Environments
    from undamped.lab.papers.reinforcement.ppo import PPO
    from undamped.lab.papers.reinforcement.training import Plan, play, train

    places = [environment, *([LARGER[environment]] if environment in LARGER else [])]
    for place in places:
        Environments(place, 1)  # a wrong name should be said before an hour of training
    for name in networks:
        _check_network(name)
    played = []
    for name in networks:
        known = options_of(models[name])
        options = {"hidden_size": units}
        options |= {k: v for k, v in (("recent", recent), ("kept", kept)) if k in known}
        settings = PPO(learning_rate=learning_rate, group=max(1, copies // 4))
        plan = Plan(environment, name, options, frames, copies, rollout, settings, seed)

        def tell(line: str, name: str = name) -> None:
            if tick is not None:
                tick(f"{name} in {environment}: {line}")

        learnt = train(plan, out, tell)
        returns = {}
        for place in places:
            tell(f"tried in {place}")
            returns[place] = play(learnt.agent, place, tests, copies, seed)
        played.append(
            Played(
                name,
                returns,
                learnt.frames,
                learnt.returns,
                learnt.cpu_seconds,
                learnt.parameters,
            )
        )
    return MinigridExperiment(environment, frames, tests, seed, tuple(played))


def _check_network(name: str) -> None:
    from undamped.nn.recurrent import Recurrent

    kind = models[name]
    if not (isinstance(kind, type) and issubclass(kind, Recurrent)):
        raise OptionError(
            explain(
                "minigrid.networks",
                expected="recurrent networks, which have a state to remember with",
                got=f"'{name}'",
                remedy="Take lstm, gru, rellstm or unicornn, for example.",
            )
        )
