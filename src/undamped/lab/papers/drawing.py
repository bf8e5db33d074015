"""Lines of a picture that can be told apart."""

from __future__ import annotations

from typing import Any

DASHES = ("-", "--", "-.", ":")


def line_of(index: int) -> dict[str, Any]:
    """Return matplotlib's colour and dash of line number `index`."""
    from undamped.analysis.core.figures import PALETTE

    return {"color": PALETTE[index % len(PALETTE)], "linestyle": DASHES[index % len(DASHES)]}
