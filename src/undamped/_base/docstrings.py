"""Sections of docstrings, which help pages and the documentation site are made of.

A public class documents itself in sections (`Equation:`, `Symbols:`, `Promise:`, `Args:`,
`Example:`, `Reference:`), each a heading at the margin with indented lines below it.
"""

from __future__ import annotations

import inspect
from typing import Any

HEADINGS = ("Equation", "Symbols", "Promise", "Args", "Returns", "Example", "Reference")


def sections(target: Any) -> dict[str, str]:
    """Split a docstring into its sections; the text before the first one is under ''."""
    texts: dict[str, list[str]] = {"": []}
    current = ""
    for line in (inspect.getdoc(target) or "").splitlines():
        heading = line.removesuffix(":")
        if line.endswith(":") and heading in HEADINGS:
            current = heading
            texts[current] = []
        else:
            texts[current].append(line)
    return {name: inspect.cleandoc("\n".join(lines)) for name, lines in texts.items()}


def documented_arguments(target: Any) -> dict[str, str]:
    """Read the `Args:` section of a docstring into a dictionary of one-line descriptions."""
    arguments: dict[str, str] = {}
    current = ""
    for line in sections(target).get("Args", "").splitlines():
        if line and not line.startswith(" "):
            current, _, text = line.partition(":")
            arguments[current] = text.strip()
        elif current and line.strip():
            arguments[current] += " " + line.strip()
    return arguments
