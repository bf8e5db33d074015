"""Who takes part in experiments about relations, by the names that tables use."""

from __future__ import annotations

from collections.abc import Sequence

from undamped._base.options import unknown_name
from undamped.lab.papers.relational.grid import Contestant

KNOWN = {
    one.name: one
    for one in (
        Contestant("CoRelNet", "corelnet"),
        Contestant("CoRelNet, frozen", "corelnet", {"encoder": "frozen"}),
        Contestant("CoRelNet-T", "corelnet-t"),
        Contestant("ESBN", "esbn"),
        Contestant("PrediNet", "predinet"),
        Contestant("Transformer", "picture-transformer"),
        Contestant("LSTM", "picture-rnn"),
        Contestant("RN", "relation-net"),
        Contestant("NTM", "ntm"),
        Contestant("MNM", "mnm"),
        Contestant("CoRelNet, sensory", "corelnet", {"sensory": True}),
        Contestant("CoRelNet-T, sensory", "corelnet-t", {"sensory": True}),
        Contestant("ESBN, sensory", "esbn", {"sensory": True}),
        Contestant("CoRelNet, asymmetric", "corelnet", {"similarity": "asymmetric"}),
        Contestant("CoRelNet-T, asymmetric", "corelnet-t", {"similarity": "asymmetric"}),
        Contestant("ESBN, asymmetric", "esbn", {"similarity": "asymmetric"}),
        Contestant("CoRelNet-T, frozen", "corelnet-t", {"encoder": "frozen"}),
        Contestant("ESBN, frozen", "esbn", {"encoder": "frozen"}),
        Contestant("CoRelNet-diff", "corelnet-diff"),
        Contestant("CoRelNet-mix", "corelnet-mix"),
    )
}
"""Everybody: the ten of the thesis, and variants of three of them."""


def chosen(names: Sequence[str]) -> list[Contestant]:
    """Return contestants by name; "unicornn" and other recurrent networks are known too.

    Args:
        names: As in `KNOWN`, or registry names of recurrent networks. A comma within a name may
            be a plus: "CoRelNet+frozen".
    """
    from undamped._base.registry import models
    from undamped.nn.recurrent import Recurrent

    found = []
    for name in names:
        full = name.replace("+", ", ")
        if full in KNOWN:
            found.append(KNOWN[full])
        elif name in models and issubclass(models[name], Recurrent):
            found.append(Contestant(name, "picture-rnn", {"head": name, "hidden_size": 128}))
        else:
            raise unknown_name("contestant", name, [n.replace(", ", "+") for n in KNOWN])
    return found
