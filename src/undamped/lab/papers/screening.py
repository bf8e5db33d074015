"""How much a network with memory has to keep, and what makes a state worth keeping: B.3.

RelLSTMs learn denoise with different numbers ν of recent and ρ of kept states, and with different
ways of screening. Measured are the symbols right, how far gradients fall on their way back, the
sparsity κ and depth d of their attention, and whether the states of the symbols are the kept ones.

    undamped reproduce screening --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.contenders import CONTENDERS, UNITS
from undamped.lab.papers.gradients_and_memory import decades
from undamped.lab.papers.hidden_gradients import hidden_gradients
from undamped.lab.papers.recall import Budget, Trained, model_of, train_and_test

SIZES = (3, 8, 18, 25)
FIXED = 15
"""What ν is while ρ varies, and ρ while ν does."""
Way = Literal["attention", "share", "surprise", "learned"]
WAYS: tuple[Way, ...] = get_args(Way)
Sweep = Literal["kept", "recent", "screening"]


@dataclass(frozen=True)
class Screened:
    """One network.

    Args:
        recent: ν.
        kept: ρ.
        screening: What made a state relevant.
        trained: Its training and tests.
        gradients: ‖∂L/∂h_t‖ for every step of sequences of the training delay.
        sparsity: κ, the largest number of states that a step attends to.
        depth: d, the largest number of states between the last step and another.
        symbols_kept: The share of symbols whose state is in memory when the marker comes.
    """

    recent: int
    kept: int
    screening: str
    trained: Trained
    gradients: list[float]
    sparsity: int
    depth: int
    symbols_kept: float

    @property
    def name(self) -> str:
        """What it is called in tables and pictures."""
        return f"ν {self.recent}, ρ {self.kept}, {self.screening}"


@dataclass(frozen=True)
class ScreeningExperiment:
    """All networks.

    Args:
        delay: The delay of training.
        delays: Those of the tests.
        budget: How long each was trained.
        found: The networks.
    """

    delay: int
    delays: tuple[int, ...]
    budget: Budget
    found: tuple[Screened, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "delay": self.delay,
            "budget": vars(self.budget),
            "found": [
                {**vars(one), "trained": {**vars(one.trained), "run": str(one.trained.run)}}
                for one in self.found
            ],
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        heads = " | ".join(f"T = {delay}" for delay in self.delays)
        lines = [
            f"RelLSTM on denoise, trained at T = {self.delay} for at most {self.budget.steps:,} "
            f"updates of {self.budget.batch_size}, {self.budget.units} units, seed "
            f"{self.budget.seed}: symbols right in {self.budget.tests} new sequences in percent, "
            "the share of symbols in memory at the marker, κ and d of its attention, and how many "
            "decades ‖∂L/∂h‖ changes from the end of the noise to its beginning.",
            "",
            f"| ν, ρ, screening | {heads} | symbols kept | κ | d | decades | updates | "
            "CPU minutes |",
            "|---|" + "---:|" * (len(self.delays) + 6),
        ]
        for one in self.found:
            cells = " | ".join(f"{100 * one.trained.accuracy[d]:.1f}" for d in self.delays)
            lines.append(
                f"| {one.name} | {cells} | {one.symbols_kept:.0%} | {one.sparsity} | {one.depth} | "
                f"{decades(one.gradients):+.1f} | {one.trained.updates:,} | "
                f"{one.trained.cpu_seconds / 60:.1f} |"
            )
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return gradients over time and learning curves, side by side."""
        from matplotlib.figure import Figure

        from undamped.lab.papers.drawing import line_of

        figure = Figure(figsize=(12, 4.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        for index, one in enumerate(self.found):
            updates, accuracies = one.trained.curve
            left.plot(updates, [100 * a for a in accuracies], label=one.name, **line_of(index))
            right.plot(one.gradients, **line_of(index))
        left.set_xlabel("updates")
        left.set_ylabel("symbols right in validation (%)")
        left.set_title("What is kept decides what is learnt", fontsize=10)
        left.legend(fontsize="x-small")
        right.set_yscale("log")
        right.set_xlabel("step t")
        right.set_ylabel("‖∂L/∂h(t)‖")
        right.set_title("Gradients after training: peaks are states that are kept", fontsize=10)
        return {"screening": figure}


@experiments.register("screening")
def run(
    *,
    sweeps: Sequence[Sweep] = ("kept", "recent", "screening"),
    sizes: Sequence[PositiveInt] = SIZES,
    ways: Sequence[Way] = WAYS,
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = (100, 300, 500),
    steps: PositiveInt = 4000,
    batch_size: PositiveInt = 16,
    goal: Fraction = 0.999,
    units: PositiveInt = UNITS,
    tests: PositiveInt = 200,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> ScreeningExperiment:
    """How many states have to be kept, and which.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        sweeps: What varies: kept (ρ), recent (ν) or screening.
        sizes: The numbers ρ and ν that are tried, the other being 15.
        ways: The ways of screening that are tried, with ν = ρ = 15.
        delay: The delay of training.
        delays: The delays of the tests.
        steps: Updates of each network at most.
        batch_size: Sequences per update, for networks that have no number of their own.
        goal: The share of symbols right in validation at which training ends.
        units: Hidden units of each network.
        tests: Sequences of every test.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(sweeps=("screening",))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
    """
    budget = Budget(steps, batch_size, goal, units, seed, tests)
    choices: list[tuple[int, int, str]] = []
    for sweep in sweeps:
        if sweep == "screening":
            choices += [(FIXED, FIXED, way) for way in ways]
        else:
            choices += [
                (FIXED, size, "attention") if sweep == "kept" else (size, FIXED, "attention")
                for size in sizes
            ]
    found = []
    for recent, kept, screening in dict.fromkeys(choices):
        options = {"recent": recent, "kept": kept, "screening": screening}
        base = CONTENDERS["rellstm"]
        contender = replace(base, options={**base.options, **options})
        name = f"ν {recent}, ρ {kept}, {screening}"
        trained = train_and_test(
            "denoise", name, contender, delay, delays, budget, out=out, tick=tick
        )
        found.append(_look_at(trained, delay, recent, kept, screening))
    return ScreeningExperiment(delay, tuple(delays), budget, tuple(found))


def _look_at(trained: Trained, delay: int, recent: int, kept: int, screening: str) -> Screened:
    from undamped._base.registry import tasks
    from undamped.analysis import attention_of

    model = model_of(trained)
    task: Any = tasks.build("denoise", delay=delay, seed=0)
    batch = task.batch("test", 0, 16)
    attention = attention_of(model, batch.inputs[:, :1])[0]
    return Screened(
        recent,
        kept,
        screening,
        trained,
        hidden_gradients(model, "denoise", delay, 16),
        attention.sparsity,
        attention.depth,
        symbols_kept(model, batch.inputs),
    )


def symbols_kept(model: Any, inputs: Any) -> float:
    """Return the share of symbols whose state is recent or kept when the marker comes.

    Args:
        model: A model whose network is a RelRNN or a RelLSTM.
        inputs: (time, batch), symbols of the denoise task.
    """
    import torch

    from undamped.lab.tasks.denoise import MARKER

    cell, x = model.network.cell(0), model.encode(inputs)
    with torch.no_grad():
        record = cell.record(x, cell.initial_state(x.shape[1], x))
    marker = int((inputs[:, 0] == MARKER).nonzero()[0])
    there, count = 0, 0
    for sample in range(inputs.shape[1]):
        places = ((inputs[:marker, sample] > 0) & (inputs[:marker, sample] < MARKER)).nonzero()
        held = {*record.kept[sample, marker].tolist(), *range(marker - cell.recent + 1, marker)}
        there += sum(int(place) in held for place in places)
        count += len(places)
    return there / count
