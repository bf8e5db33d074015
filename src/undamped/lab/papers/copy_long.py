"""Learning to copy over longer and longer delays, each from the start: table B.2.

undamped reproduce copy-long delays=100,500 networks=rellstm,lstm --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.contenders import UNITS, chosen
from undamped.lab.papers.recall import Budget, Printed, RecallExperiment, train_and_test

DELAYS = (100, 200, 300, 500, 1000, 2000)
PRINTED: Printed = {
    name: dict(zip(DELAYS, values, strict=True))
    for name, values in {
        "orth-rnn": (100, 100, 100, 100, 80, 11),
        "exprnn": (100,) * 6,
        "lstm": (100, 100, 100, 12, 12, 12),
        "memrnn": (100, 100, 100, 100, 100, "out of memory"),
        "sab": (100,) * 6,
        "relrnn": (100,) * 6,
        "rellstm": (100,) * 6,
    }.items()
}


@experiments.register("copy-long")
def run(
    *,
    delays: Sequence[PositiveInt] = (100, 300, 500),
    networks: Sequence[str] = tuple(PRINTED),
    steps: PositiveInt = 10_000,
    batch_size: PositiveInt = 16,
    goal: Fraction = 0.999,
    units: PositiveInt = UNITS,
    tests: PositiveInt = 200,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> RecallExperiment:
    """Learn to copy over every delay from the start.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        delays: The delays; each is learnt and tested.
        networks: Which ones, of `contenders.CONTENDERS`.
        steps: Updates of each network at most.
        batch_size: Sequences per update, for networks that have no number of their own.
        goal: The share of symbols right in validation at which training ends.
        units: Hidden units of each network.
        tests: Sequences of every test.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(delays=(100,), networks=("rellstm", "lstm"))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
    """
    budget = Budget(steps, batch_size, goal, units, seed, tests)
    trained = [
        train_and_test("copy", name, contender, delay, (delay,), budget, out=out, tick=tick)
        for name, contender in chosen(networks).items()
        for delay in delays
    ]
    title = f"Trained to copy over every T from the start, at most {steps:,} updates."
    return RecallExperiment("copy", title, tuple(delays), tuple(trained), PRINTED, budget, {})
