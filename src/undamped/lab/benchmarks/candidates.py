"""The recurrent networks that a benchmark measures."""

from __future__ import annotations

from undamped._base.registry import models
from undamped.nn.recurrent import Recurrent


def recurrent_networks(named: str) -> list[str]:
    """Return the networks that are named, with commas between them; all of the registry if none.

    Args:
        named: Names with commas between them, or nothing.
    """
    names = [name.strip() for name in named.split(",") if name.strip()]
    for name in names:
        models[name]  # which says what is wrong with a name that is not there
    return names or [
        name
        for name in models
        if isinstance(models[name], type) and issubclass(models[name], Recurrent)
    ]
