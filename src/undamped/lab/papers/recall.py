"""Networks that recall symbols after a delay: `transfer-copy`, `copy-long` and `denoise`.

Tables 4.1, 4.2 and B.2 of the thesis. Networks are trained at one delay and tested at others, or
trained at every delay.

    undamped reproduce transfer-copy --out figures/
    undamped reproduce copy-long delays=100,500 networks=rellstm,lstm --out figures/
    undamped reproduce denoise --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped.lab.papers.recall_gradients import SHORTEST, add_gradients_and_memory
from undamped.lab.papers.recall_networks import (
    RecallOptions,
    TrainedNetwork,
    network_setups,
    train_and_test,
)
from undamped.lab.papers.runs import experiment, unique
from undamped.lab.report.charts import BLACK_LINE, draw_lines, label, panels
from undamped.lab.report.table import Report, Table

CHANCE = 12.5
"""Percent of symbols that a random answer has right."""
Paper = Mapping[str, Mapping[int, float | str]]
"""The numbers of the thesis in percent, by network and delay."""


def _paper(delays: Sequence[int], rows: Mapping[str, Sequence[float | str]]) -> Paper:
    return {name: dict(zip(delays, row, strict=True)) for name, row in rows.items()}


TRANSFER_DELAYS = (100, 200, 400, 2000, 5000)
TRANSFER_PAPER = _paper(
    TRANSFER_DELAYS,
    {
        "orth-rnn": (99, 4, 16, 10, 0),
        "exprnn": (100, 86, 73, 58, 50),
        "lstm": (99, 64, 48, 19, 14),
        "h-detach": (100, 91, 77, 51, 42),
        "memrnn": (99, 99, 99, 92, "out of memory"),
        "sab": (99, 95, 95, 95, 95),
        "relrnn": (100, 99, 99, 99, 99),
        "rellstm": (100, 99, 99, 99, 99),
    },
)
COPY_PAPER = _paper(
    (100, 200, 300, 500, 1000, 2000),
    {
        "orth-rnn": (100, 100, 100, 100, 80, 11),
        "exprnn": (100,) * 6,
        "lstm": (100, 100, 100, 12, 12, 12),
        "memrnn": (100, 100, 100, 100, 100, "out of memory"),
        "sab": (100,) * 6,
        "relrnn": (100,) * 6,
        "rellstm": (100,) * 6,
    },
)
DENOISE_DELAYS = (100, 300, 500, 1000, 2000)
DENOISE_PAPER = _paper(
    DENOISE_DELAYS,
    {
        "orth-rnn": (90, 71, 61, 29, 3),
        "exprnn": (34, 25, 20, 16, 11),
        "lstm": (82, 41, 33, 21, 15),
        "goru": (92, 93, 91, 93, 73),
        "memrnn": (99, 99, 99, 99, "out of memory"),
        "sab": (99,) * 5,
        "relrnn": (100, 99, 99, 99, 99),
        "rellstm": (100, 99, 99, 99, 99),
    },
)


def recall_report(
    task: str,
    title: str,
    delays: Sequence[int],
    networks: Sequence[TrainedNetwork],
    paper: Paper,
    budget: Mapping[str, Any],
) -> Report:
    """Return the report of trained networks: a table with the numbers of the thesis, and curves.

    Args:
        task: "copy" or "denoise".
        title: One sentence about the training.
        delays: The columns of the table.
        networks: One entry for every training; where a network was trained at several delays, the
            column of a delay has the network that was trained at it.
        paper: The numbers of the thesis.
        budget: All options of `RecallOptions`.
    """
    rows = []
    for name in unique(entry.network for entry in networks):
        trainings = [entry for entry in networks if entry.network == name]
        printed = paper.get(name.removesuffix("-sum"), {})
        cells = [_cell(trainings, delay, printed.get(delay)) for delay in delays]
        updates = " + ".join(f"{entry.updates:,} of {entry.batch_size}" for entry in trainings)
        minutes = " + ".join(f"{entry.cpu_seconds / 60:.1f}" for entry in trainings)
        rows.append((name, f"{trainings[0].parameters:,}", *cells, updates, minutes))
    about = (
        f"{title} Correct symbols in {budget['tests']} new sequences, in percent; in brackets the "
        f"numbers of the thesis. {budget['units']} units, seed {budget['seed']}; random answers "
        f"have {CHANCE}."
    )
    header = ("network", "parameters", *(f"T = {delay}" for delay in delays), "updates")
    return Report(
        networks,
        [Table((*header, "CPU minutes"), rows, about)],
        {f"{task}-curves": lambda: _curves(task, networks)},
        {"printed_percent": paper},
        {"task": task},
    )


def _cell(trainings: Sequence[TrainedNetwork], delay: int, paper: float | str | None) -> str:
    tested = [entry for entry in trainings if delay in entry.accuracy]
    best = next((entry for entry in tested if entry.delay == delay), tested[0] if tested else None)
    ours = "" if best is None else f"{100 * best.accuracy[delay]:.1f}"
    return ours if paper is None else f"{ours} ({paper})"


def _curves(task: str, networks: Sequence[TrainedNetwork]) -> Any:
    figure, (axes,) = panels(8, 4.5)
    several = len({entry.delay for entry in networks}) > 1
    lines = {
        f"{entry.network}, T = {entry.delay}" if several else entry.network: (
            entry.curve[0],
            [100 * accuracy for accuracy in entry.curve[1]],
        )
        for entry in networks
    }
    draw_lines(axes, lines)
    axes.axhline(CHANCE, label="random answers", **BLACK_LINE)
    title = f"{task}: networks whose curve ends at the top have learnt the task"
    label(axes, "updates", "correct symbols in validation (%)", title)
    return figure


@experiment("transfer-copy")
def transfer_copy(
    *,
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = TRANSFER_DELAYS,
    networks: Sequence[str] = tuple(TRANSFER_PAPER),
    **budget: Unpack[RecallOptions],
) -> Report:
    """Learn to copy over 100 steps, and copy over thousands (table 4.1).

    A network that stores states and waits for the marker copies over any delay; one that has
    learnt to count steps does not.

    Args:
        delay: The delay of the training.
        delays: The delays of the tests.
        networks: Names of networks, of `recall_networks.NETWORKS`.
        budget: Training; see `RecallOptions`.

    Example:
        >>> result = transfer_copy(networks=("rellstm", "lstm"), steps=3000)

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, table 1.
    """
    trained = [
        train_and_test("copy", name, setup, delay, delays, budget)
        for name, setup in network_setups(networks).items()
    ]
    title = f"Trained to copy over T = {delay}, at most {budget['steps']:,} updates."
    report = recall_report("copy", title, delays, trained, TRANSFER_PAPER, budget)
    rows = [
        (e.network, *(f"{100 * e.step_accuracy[test]:.1f}" for test in delays)) for e in trained
    ]
    about = "The same sequences: correct answers at all steps, blanks included, in percent."
    table = Table(("network", *(f"T = {test}" for test in delays)), rows, about)
    return replace(report, tables=[*report.tables, table])


@experiment("copy-long")
def copy_long(
    *,
    delays: Sequence[PositiveInt] = (100, 300, 500),
    networks: Sequence[str] = tuple(COPY_PAPER),
    **budget: Unpack[RecallOptions],
) -> Report:
    """Learn to copy over longer and longer delays, each from new weights (table B.2).

    Args:
        delays: The delays; a network is trained and tested at each.
        networks: Names of networks, of `recall_networks.NETWORKS`.
        budget: Training; see `RecallOptions`.

    Example:
        >>> result = copy_long(delays=(100,), networks=("rellstm", "lstm"))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
    """
    trained = [
        train_and_test("copy", name, setup, delay, (delay,), budget)
        for name, setup in network_setups(networks).items()
        for delay in delays
    ]
    title = f"Trained to copy over every T from new weights, at most {budget['steps']:,} updates."
    return recall_report("copy", title, delays, trained, COPY_PAPER, budget)


@experiment("denoise")
def denoise(
    *,
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = DENOISE_DELAYS,
    each: bool = False,
    networks: Sequence[str] = tuple(DENOISE_PAPER),
    gradient_delay: NonNegativeInt = 480,
    lengths: Sequence[PositiveInt] = (250, 500, 1000, 2000),
    **budget: Unpack[RecallOptions],
) -> Report:
    """Collect ten symbols from noise and recall them in order (table 4.2, figure 4.2).

    Args:
        delay: The delay of the training.
        delays: The delays of the tests.
        each: Whether to train from new weights at every delay of the tests, as in the thesis.
        networks: Names of networks, of `recall_networks.NETWORKS`.
        gradient_delay: The delay at which gradients are measured; 0 measures neither gradients nor
            memory.
        lengths: The lengths at which the memory of a training step is measured.
        budget: Training; see `RecallOptions`.

    Example:
        >>> result = denoise(networks=("rellstm", "lstm"), steps=3000)

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, table 2, figure 2.
    """
    if min(lengths, default=SHORTEST) < SHORTEST:
        raise OptionError(
            f"lengths must be ≥ {SHORTEST} (symbols, marker and answers), got {min(lengths)}."
        )
    setups = network_setups(networks)
    plan = [(test, (test,)) for test in delays] if each else [(delay, tuple(delays))]
    trained = [
        train_and_test("denoise", name, setup, training_delay, test_delays, budget)
        for name, setup in setups.items()
        for training_delay, test_delays in plan
    ]
    trained_at = "every T from new weights" if each else f"T = {delay}"
    title = f"Trained on denoise at {trained_at}, at most {budget['steps']:,} updates."
    report = recall_report("denoise", title, delays, trained, DENOISE_PAPER, budget)
    if not gradient_delay:
        return report
    first = {entry.network: entry for entry in reversed(trained)}
    pairs = [(first[name], setup) for name, setup in setups.items()]
    return add_gradients_and_memory(report, pairs, gradient_delay, lengths, budget)
