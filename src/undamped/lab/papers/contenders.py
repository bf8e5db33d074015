"""The networks that remember symbols, with the settings that each is trained with.

Names and order are those of tables 4.1, 4.2 and B.2 of the thesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from undamped._base.options import unknown_name

UNITS = 128


@dataclass(frozen=True)
class Contender:
    """A network and how it is trained.

    Args:
        model: Its registry name.
        options: Options of the network.
        train: Options of training.
    """

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


BEGIN = {"input_std": 1.0, "forget_bias": 1.0}
"""LSTMs that are drawn as torch draws them hardly tell one-hot symbols apart for thousands of
updates. One that begins by remembering for some twenty steps (a forget gate of σ(3)) learns to copy
over that many, which it needs before it can fail at more."""
ROTATION = {"optimizer": "rmsprop", "learning_rate": 1e-3, "constrained_learning_rate": 1e-4}
MEMORY = {"recent": 10, "kept": 15}
CONTENDERS: dict[str, Contender] = {
    "orth-rnn": Contender(
        "rnn-orth", {"initialisation": "random", "nonlinearity": "modrelu"}, ROTATION
    ),
    "exprnn": Contender("exprnn", {}, ROTATION),
    "lstm": Contender("lstm", BEGIN, {"learning_rate": 2e-3}),
    "lstm-remembering": Contender(
        "lstm",
        {**BEGIN, "forget_bias": 3.0},
        {"learning_rate": 5e-3, "batch_size": 32, "schedule": "cosine"},
    ),
    "h-detach": Contender("lstm", {"h_detach": 0.25, **BEGIN}, {"learning_rate": 2e-3}),
    "goru": Contender("goru", {}, {"optimizer": "rmsprop"}),
    "memrnn": Contender("memrnn", {}, {"batch_size": 32}),
    "memlstm": Contender("memlstm", BEGIN, {"learning_rate": 2e-3}),
    "sab": Contender("sab", BEGIN, {"learning_rate": 2e-3}),
    "relrnn": Contender("relrnn", {"recent": 10, "kept": 10}, {"batch_size": 32}),
    "rellstm": Contender("rellstm", {**MEMORY, **BEGIN}, {"learning_rate": 2e-3}),
}


def chosen(names: Sequence[str]) -> dict[str, Contender]:
    """Return the contenders of these names, or say which there are."""
    for name in names:
        if name not in CONTENDERS:
            raise unknown_name("network of this experiment", name, list(CONTENDERS))
    return {name: CONTENDERS[name] for name in names}
