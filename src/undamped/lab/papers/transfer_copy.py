"""Learning to copy over 100 steps and copying over thousands: table 4.1.

A network that remembers states and waits for the marker copies over any delay; one that has learnt
a clock does not.

    undamped reproduce transfer-copy --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.contenders import UNITS, chosen
from undamped.lab.papers.recall import Budget, Printed, RecallExperiment, train_and_test

DELAYS = (100, 200, 400, 2000, 5000)
PRINTED: Printed = {
    name: dict(zip(DELAYS, values, strict=True))
    for name, values in {
        "orth-rnn": (99, 4, 16, 10, 0),
        "exprnn": (100, 86, 73, 58, 50),
        "lstm": (99, 64, 48, 19, 14),
        "h-detach": (100, 91, 77, 51, 42),
        "memrnn": (99, 99, 99, 92, "out of memory"),
        "sab": (99, 95, 95, 95, 95),
        "relrnn": (100, 99, 99, 99, 99),
        "rellstm": (100, 99, 99, 99, 99),
    }.items()
}


@experiments.register("transfer-copy")
def run(
    *,
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = DELAYS,
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
    """Learn to copy over 100 steps, and copy over thousands.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        delay: The delay of training.
        delays: The delays of the tests.
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
        >>> result = run(networks=("rellstm", "lstm"), steps=3000)

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, table 1.
    """
    budget = Budget(steps, batch_size, goal, units, seed, tests)
    trained = [
        train_and_test("copy", name, contender, delay, delays, budget, out=out, tick=tick)
        for name, contender in chosen(networks).items()
    ]
    title = f"Trained to copy over T = {delay}, at most {steps:,} updates."
    return RecallExperiment("copy", title, tuple(delays), tuple(trained), PRINTED, budget, {})
