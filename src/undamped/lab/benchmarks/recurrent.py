"""The recurrent family beside torch's own networks and torchrecurrent's: speed and memory.

All networks of the registry are timed in turn, forward and backward, in one run, and quoted as
multiples of nn.RNN(tanh), also for each product with a hidden × hidden matrix that a step makes: an
LSTM has four, and cannot cost what a plain network costs. A second table has large networks,
where structured matrices must win over dense ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from undamped._base.memory import peak_memory
from undamped._base.registry import benchmarks, models
from undamped.lab.benchmarks.recurrent_tables import BASELINE, RecurrentBenchmark, Shape
from undamped.lab.benchmarks.timing import interleaved
from undamped.nn.bases.memory import MemoryCell
from undamped.nn.recurrent import Recurrent

TORCH = {"nn.RNN": nn.RNN, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
TORCH_PRODUCTS = {"nn.RNN": 1.0, "nn.LSTM": 4.0, "nn.GRU": 3.0}
THEIRS = {
    "antisymmetric": "AntisymmetricRNN",
    "gated-antisymmetric": "GatedAntisymmetricRNN",
    "cornn": "coRNN",
    "fastrnn": "FastRNN",
    "fastgrnn": "FastGRNN",
    "indrnn": "IndRNN",
    "unicornn": "UnICORNN",
}
"""Registry names, and the class of torchrecurrent that has the same cell."""
COMPLEX = ("urnn", "full-capacity-urnn", "eurnn")
STRUCTURED = ("ornn", "eurnn", "urnn")
DENSE = (BASELINE, "rnn-orth", "full-capacity-urnn")
"""What structured matrices are compared with: real, and complex."""
_THEIR = "torchrecurrent "

SHAPE, LARGE = Shape(1000, 128, 1, 128), Shape(50, 128, 1, 1024)
QUICK_SHAPE, QUICK_LARGE = Shape(50, 8, 1, 16), Shape(5, 8, 1, 64)


@benchmarks.register("recurrent")
def run(
    *, rounds: int = 5, quick: bool = False, tick: Callable[[str], None] | None = None
) -> RecurrentBenchmark:
    """The recurrent family beside torch's own networks and torchrecurrent's: speed and memory.

    Args:
        rounds: How often each network is timed.
        quick: Small shapes, and the memory of few networks, to see that everything runs.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    shape, large = (QUICK_SHAPE, QUICK_LARGE) if quick else (SHAPE, LARGE)
    names = networks()
    both = {**_candidates((*TORCH, *names), shape), **_their_candidates(shape)}
    # Each of theirs right after ours of the same name, so that both see the same minute.
    order = [at for name in (*TORCH, *names) for at in (name, _THEIR + name) if at in both]
    measured = interleaved({name: both[name] for name in order}, rounds=rounds, tick=tick)
    theirs = {n.removeprefix(_THEIR): t for n, t in measured.items() if n.startswith(_THEIR)}
    timings = {name: timing for name, timing in measured.items() if not name.startswith(_THEIR)}
    structured = interleaved(
        _candidates((*DENSE, *STRUCTURED), large), rounds=min(rounds, 3), tick=tick
    )
    memory = {}
    for name in ("exprnn",) if quick else (*TORCH, *names):
        memory[name] = peak_memory(_memory_work, name, shape)
        if tick is not None:
            tick(f"memory {name}")
    return RecurrentBenchmark(
        threads=torch.get_num_threads(),
        shape=shape,
        timings=timings,
        products={name: _products(name, shape) for name in timings},
        theirs=theirs,
        large_shape=large,
        large=structured,
        structured=STRUCTURED,
        complex_cells=COMPLEX,
        memory=memory,
    )


def networks() -> list[str]:
    """Return the names of all recurrent networks but those with memory: `bench memory` has them."""
    return [
        name
        for name in models
        if isinstance(models[name], type)
        and issubclass(models[name], Recurrent)
        and not issubclass(models[name].cell_class, MemoryCell)
    ]


def _build(name: str, shape: Shape) -> nn.Module:
    torch.manual_seed(0)
    if name in TORCH:
        return TORCH[name](shape.inputs, shape.units)
    return models.build(name, input_size=shape.inputs, hidden_size=shape.units)


def _products(name: str, shape: Shape) -> float:
    if name in TORCH_PRODUCTS:
        return TORCH_PRODUCTS[name]
    network = _build(name, shape)
    assert isinstance(network, Recurrent)
    return network.cell(0).products


def _candidates(names: tuple[str, ...], shape: Shape) -> dict[str, Callable[[], None]]:
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {name: partial(_train, _build(name, shape), x) for name in names}


def _their_candidates(shape: Shape) -> dict[str, Callable[[], None]]:
    if find_spec("torchrecurrent") is None:
        return {}
    import torchrecurrent

    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {
        _THEIR + name: partial(
            _train, getattr(torchrecurrent, theirs)(shape.inputs, shape.units), x
        )
        for name, theirs in THEIRS.items()
    }


def _train(network: nn.Module, x: Tensor) -> None:
    network(x)[0].sum().backward()


def _memory_work(name: str, shape: Shape) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries, kernels and input are in place before."""
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    network = _build(name, shape)
    _train(network, x[:8])
    return partial(_train, network, x)
