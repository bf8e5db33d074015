"""Stubs of the packages whose names are made on demand: `python -m undamped._base.stubs` writes them.

Type checkers and editors read `__init__.pyi` in place of `__init__.py`. So they know
`undamped.nn.coRNN`, its options and their defaults, though no line of the source spells them out.
A test compares the files with what this module would write.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from undamped._base.describe import summary
from undamped._base.options import Option, options_of

PACKAGES = ("undamped", "undamped.nn", "undamped.nn", "undamped.lab.tasks")
MADE = "undamped.nn.models"
"""The module whose classes are made of declarations and stand in no file."""


def stub(package: str) -> str:
    """Return the text of a package's stub."""
    module = importlib.import_module(package)
    lines = [
        f'"""{(module.__doc__ or "").splitlines()[0]}',
        "",
        "Written by `python -m undamped._base.stubs`; do not edit.",
        '"""',
        "",
    ]
    classes, imports = [], []
    for name in module.__all__:
        member = getattr(module, name)
        if package == "undamped.nn" and inspect.isclass(member) and member.__module__ == MADE:
            classes.append(_network(name, member))
            base = member.__mro__[1]
            imports.append(f"from {base.__module__} import {base.__name__} as {base.__name__}")
            continue
        imports.append(f"from {_home(package, name, member)} import {name} as {name}")
    if package == "undamped":
        rooms = sorted(found.name for found in pkgutil.iter_modules(module.__path__))
        imports += [f"from undamped import {room} as {room}" for room in rooms if room[0] != "_"]
    if classes:
        lines += ["from collections.abc import Sequence", "from typing import Any, Literal", ""]
    lines += sorted(set(imports))
    for text in classes:
        lines += ["", text]
    return "\n".join([*lines, ""])


def write_stubs(folder: Path | None = None) -> list[Path]:
    """Write the stubs beside the packages, or below another folder; return their paths."""
    written = []
    for package in PACKAGES:
        path = stub_path(package, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stub(package), encoding="utf-8")
        written.append(path)
    return written


def stub_path(package: str, folder: Path | None = None) -> Path:
    """Return where a package's stub lies."""
    source = folder or Path(__file__).parent.parent
    return source.joinpath(*package.split("."), "__init__.pyi")


def _home(package: str, name: str, member: Any) -> str:
    """Return the module from which a stub imports a name."""
    table = vars(sys.modules[package])["_NAMES"]
    home = table.get(name) or member.__module__
    return "undamped.nn" if home == MADE and name != "build" else home


def _network(name: str, network: Any) -> str:
    """Write the class of a recurrent network: its base, its options, its first sentence."""
    options = list(options_of(network).values())
    positional = ("input_size", "hidden_size", "num_layers")
    first = [_parameter(option) for option in options if option.name in positional]
    rest = [_parameter(option) for option in options if option.name not in positional]
    arguments = ["self", *first, *(["*", *rest] if rest else [])]
    return "\n".join(
        [
            f"class {name}({network.__mro__[1].__name__}):",
            f'    """{summary(network)}"""',
            "",
            "    def __init__(",
            *[f"        {argument}," for argument in arguments],
            "    ) -> None: ...",
        ]
    )


def _parameter(option: Option) -> str:
    shown = "" if option.required else f" = {option.default!r}"
    return f"{option.name}: {_annotation(option.annotation)}{shown}"


def _annotation(annotation: Any) -> str:
    """Write an annotation without its limits, which no type checker knows."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotation(arguments[0])
    if origin in (Union, types.UnionType):
        return " | ".join(_annotation(argument) for argument in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return f"Sequence[{_annotation(arguments[0])}]"
    if annotation is type(None):
        return "None"
    return annotation.__name__ if annotation in (int, float, bool, str) else "Any"


if __name__ == "__main__":
    for written in write_stubs():
        sys.stdout.write(f"{written}\n")
