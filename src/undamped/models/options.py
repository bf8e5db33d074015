"""Parts of the options that a constructor takes as a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undamped._base.options import options_in


def select(options: Mapping[str, Any], group: type) -> dict[str, Any]:
    """Return the options that belong to a group, ready to be passed on as keywords.

    Args:
        options: All options of a constructor, completed by `checked`.
        group: The `TypedDict` that declares those to return.
    """
    return {name: options[name] for name in options_in(group)}
