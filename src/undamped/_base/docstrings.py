"""Sections of docstrings, which help pages and the documentation site are made of.

A public class documents itself in sections (`Equation:`, `Symbols:`, `Promise:`, `Args:`,
`Example:`, `Reference:`), each a heading at the margin with indented lines below it. Variants of a
model need not repeat what their base class documents: symbols, promise, example and reference are
inherited. An example that builds `undamped.….Base(…)` is inherited with the name of the subclass.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

HEADINGS = ("Equation", "Symbols", "Promise", "Args", "Returns", "Example", "Reference")
INHERITED = ("Symbols", "Promise", "Example", "Reference")


def sections(target: Any) -> dict[str, str]:
    """Return the sections of a docstring by heading; the text before the first one is under ''.

    A class without one of the inherited sections has that of its nearest base class.
    """
    texts = _sections(target)
    for base in target.__mro__[1:] if inspect.isclass(target) else ():
        inherited = _sections(base)
        example = inherited.pop("Example", "")
        if f".{base.__name__}(" in example:
            inherited["Example"] = example.replace(base.__name__, target.__name__)
        texts |= {h: inherited[h] for h in INHERITED if h in inherited and h not in texts}
    return {heading: texts[heading] for heading in ("", *HEADINGS) if heading in texts}


def _sections(target: Any) -> dict[str, str]:
    texts: dict[str, list[str]] = {"": []}
    current = ""
    for line in (inspect.getdoc(target) or "").splitlines():
        heading = line.removesuffix(":")
        if line.endswith(":") and heading in HEADINGS:
            current = heading
            texts[current] = []
        else:
            texts[current].append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip() for name, lines in texts.items()}


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
