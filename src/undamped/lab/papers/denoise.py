"""Collecting symbols from noise: table 4.2, and figure 4.2 about gradients and memory.

Networks are trained at one delay and tested at others without training; with `each=true` they are
trained at every delay from the start, as in the thesis.

    undamped reproduce denoise --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from undamped._base.errors import OptionError, explain
from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.contenders import UNITS, chosen
from undamped.lab.papers.gradients_and_memory import gradients_and_memory
from undamped.lab.papers.recall import Budget, Printed, RecallExperiment, train_and_test

SHORTEST = 21
DELAYS = (100, 300, 500, 1000, 2000)
PRINTED: Printed = {
    name: dict(zip(DELAYS, values, strict=True))
    for name, values in {
        "orth-rnn": (90, 71, 61, 29, 3),
        "exprnn": (34, 25, 20, 16, 11),
        "lstm": (82, 41, 33, 21, 15),
        "goru": (92, 93, 91, 93, 73),
        "memrnn": (99, 99, 99, 99, "out of memory"),
        "sab": (99,) * 5,
        "relrnn": (100, 99, 99, 99, 99),
        "rellstm": (100, 99, 99, 99, 99),
    }.items()
}


@experiments.register("denoise")
def run(
    *,
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = DELAYS,
    each: bool = False,
    networks: Sequence[str] = tuple(PRINTED),
    steps: PositiveInt = 10_000,
    batch_size: PositiveInt = 16,
    goal: Fraction = 0.999,
    units: PositiveInt = UNITS,
    tests: PositiveInt = 200,
    gradient_delay: NonNegativeInt = 480,
    lengths: Sequence[PositiveInt] = (250, 500, 1000, 2000),
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> RecallExperiment:
    """Collect ten symbols from noise and say them in order.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        delay: The delay of training.
        delays: The delays of the tests.
        each: Train at every delay of the tests from the start instead.
        networks: Which ones, of `contenders.CONTENDERS`.
        steps: Updates of each network at most.
        batch_size: Sequences per update, for networks that have no number of their own.
        goal: The share of symbols right in validation at which training ends.
        units: Hidden units of each network.
        tests: Sequences of every test.
        gradient_delay: The delay of the sequences whose gradients are drawn; 0 measures neither
            gradients nor memory.
        lengths: The lengths at which the memory of a training step is measured.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(networks=("rellstm", "lstm"), steps=3000)

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, table 2, figure 2.
    """
    if min(lengths, default=SHORTEST) < SHORTEST:
        raise OptionError(
            explain(
                "denoise.lengths",
                expected=f"lengths of at least {SHORTEST} steps",
                got=min(lengths),
                remedy="The symbols, the marker and the answers need twenty.",
            )
        )
    budget = Budget(steps, batch_size, goal, units, seed, tests)
    contenders = chosen(networks)
    trained = [
        train_and_test("denoise", name, contender, at, tested, budget, out=out, tick=tick)
        for name, contender in contenders.items()
        for at, tested in ([(d, (d,)) for d in delays] if each else [(delay, delays)])
    ]
    where = "every T from the start" if each else f"T = {delay}"
    title = f"Trained on denoise at {where}, at most {steps:,} updates."
    more = {}
    if gradient_delay:
        first = {one.network: one for one in reversed(trained)}
        more["gradients_and_memory"] = gradients_and_memory(
            [first[name] for name in contenders],
            contenders,
            delay=gradient_delay,
            lengths=lengths,
            units=units,
            tick=tick,
        )
    return RecallExperiment("denoise", title, tuple(delays), tuple(trained), PRINTED, budget, more)
