"""How many states a network with memory has to store, and which: appendix B.3.

RelLSTMs learn denoise with different numbers ν of recent and ρ of relevant states, and with
different screening rules. Measured are recall accuracy, the decay of gradients towards early steps,
the sparsity κ and depth d of the attention, and whether the states of the symbols are stored.

    undamped reproduce screening --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Unpack, get_args

import torch

from undamped._base.options import Default, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.papers.recall_gradients import decades, hidden_gradients
from undamped.lab.papers.recall_networks import (
    NETWORKS,
    RecallOptions,
    TrainedNetwork,
    train_and_test,
)
from undamped.lab.papers.runs import experiment, unique
from undamped.lab.report.charts import draw_lines, label, panels
from undamped.lab.report.table import Report, Table

SIZES = (3, 8, 18, 25)
FIXED = 15
"""The value of ν while ρ varies, and of ρ while ν varies."""
Screening = Literal["attention", "share", "surprise", "learned"]
Sweep = Literal["relevant", "recent", "screening"]


class ScreeningOptions(RecallOptions):
    """Options of training, with a smaller budget."""

    steps: Annotated[PositiveInt, Default(4000, "Largest number of updates of each network.")]


@dataclass(frozen=True)
class ScreenedNetwork:
    """One network.

    Args:
        name: Its name in tables and figures.
        trained: Its training and tests.
        gradients: ‖∂L/∂h_t‖ for every step of sequences of the training delay.
        sparsity: κ, the largest number of states that a step attends to.
        depth: d, the largest number of states between the last step and another.
        stored_symbols: Fraction of symbols whose state is in memory at the marker.
    """

    name: str
    trained: TrainedNetwork
    gradients: list[float]
    sparsity: int
    depth: int
    stored_symbols: float


@experiment("screening")
def run(
    *,
    sweeps: Sequence[Sweep] = get_args(Sweep),
    sizes: Sequence[PositiveInt] = SIZES,
    ways: Sequence[Screening] = get_args(Screening),
    delay: PositiveInt = 100,
    delays: Sequence[PositiveInt] = (100, 300, 500),
    **budget: Unpack[ScreeningOptions],
) -> Report:
    """How many states have to be stored, and which.

    Args:
        sweeps: What varies: relevant (ρ), recent (ν) or screening.
        sizes: The values of ρ and ν; the other is 15.
        ways: The screening rules, with ν = ρ = 15.
        delay: The delay of the training.
        delays: The delays of the tests.
        budget: Training; see `RecallOptions`.

    Example:
        >>> result = run(sweeps=("screening",))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020, appendix.
    """
    variants: list[tuple[int, int, str]] = []
    for sweep in sweeps:
        if sweep == "screening":
            variants += [(FIXED, FIXED, way) for way in ways]
        elif sweep == "relevant":
            variants += [(FIXED, size, "attention") for size in sizes]
        else:
            variants += [(size, FIXED, "attention") for size in sizes]
    base, networks = NETWORKS["rellstm"], []
    for recent, relevant, screening in unique(variants):
        memory = {"recent": recent, "relevant": relevant, "screening": screening}
        setup = replace(base, options={**base.options, **memory})
        name = f"ν {recent}, ρ {relevant}, {screening}"
        trained = train_and_test("denoise", name, setup, delay, delays, budget)
        networks.append(_measure(name, trained, delay))
    title = (
        f"RelLSTM on denoise, trained at T = {delay} for at most {budget['steps']:,} updates of "
        f"{budget['batch_size']}, {budget['units']} units, seed {budget['seed']}: correct symbols "
        f"in {budget['tests']} new sequences in percent, the fraction of symbols in memory at the "
        "marker, κ and d of its attention, and the change of ‖∂L/∂h‖ in decades from the end of "
        "the noise to its beginning."
    )
    header = ("ν, ρ, screening", *(f"T = {test}" for test in delays), "symbols kept", "κ", "d")
    rows = [
        (
            network.name,
            *(f"{100 * network.trained.accuracy[test]:.1f}" for test in delays),
            f"{network.stored_symbols:.0%}",
            str(network.sparsity),
            str(network.depth),
            f"{decades(network.gradients):+.1f}",
            f"{network.trained.updates:,}",
            f"{network.trained.cpu_seconds / 60:.1f}",
        )
        for network in networks
    ]
    return Report(
        networks,
        [Table((*header, "decades", "updates", "CPU minutes"), rows, title)],
        {"screening": lambda: _figure(networks)},
    )


def _measure(name: str, trained: TrainedNetwork, delay: int) -> ScreenedNetwork:
    from undamped.analysis import attention_of

    model = trained.model()
    task: Any = tasks.build("denoise", delay=delay, seed=0)
    batch = task.batch("test", 0, 16)
    attention = attention_of(model, batch.inputs[:, :1])[0]
    return ScreenedNetwork(
        name,
        trained,
        hidden_gradients(model, "denoise", delay, 16),
        attention.sparsity,
        attention.depth,
        stored_symbols(model, batch.inputs),
    )


@torch.no_grad()
def stored_symbols(model: Any, inputs: Any) -> float:
    """Return the fraction of symbols whose state is in memory when the marker appears.

    Args:
        model: A model whose network is a RelRNN or a RelLSTM.
        inputs: (time, batch), symbols of the denoise task.
    """
    from undamped.lab.tasks.copying import DENOISE_MARKER as MARKER

    cell, x = model.network.cell(0), model.encode(inputs)
    record = cell.record(x, cell.initial_state(x.shape[1], x))
    marker = int((inputs[:, 0] == MARKER).nonzero()[0])
    stored, count = 0, 0
    for sample in range(inputs.shape[1]):
        symbols = ((inputs[:marker, sample] > 0) & (inputs[:marker, sample] < MARKER)).nonzero()
        memory = {
            *record.relevant[sample, marker].tolist(),
            *range(marker - cell.recent + 1, marker),
        }
        stored += sum(int(step) in memory for step in symbols)
        count += len(symbols)
    return stored / count


def _figure(networks: Sequence[ScreenedNetwork]) -> Any:
    figure, (learning, decay) = panels(12, 4.5, columns=2)
    curves = {network.name: network.trained.curve for network in networks}
    draw_lines(
        learning, {name: (x, [100 * value for value in y]) for name, (x, y) in curves.items()}
    )
    label(learning, "updates", "correct symbols in validation (%)", "Learning curves")
    gradients = {network.name: network.gradients for network in networks}
    draw_lines(decay, {name: (range(len(norms)), norms) for name, norms in gradients.items()})
    title = "Gradients after training: peaks are stored states"
    label(decay, "step t", "‖∂L/∂h(t)‖", title, log="y", legend=False)
    return figure
