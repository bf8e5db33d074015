"""The vocabulary, the size of functions and the size of the source; see docs/vocabulary.md."""

import ast
import importlib
import pkgutil
import types
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "undamped"
TESTS = Path(__file__).parents[1]
# A name says what a thing is, so that it can be searched for: no participles, no adverbs, no
# everyday words with many meanings.
WORDS = """
    again ahead alone already apart ask asked asks begun beside besides brought chosen contender
    contestants crew drawn found freedoms given gone guess heard heed held here home house hush keep
    kept known leader learnt look looks lost made meant member members neighbour neighbours
    nought one other own picture pictures piece pieces place places pull pulled put rival rivals
    room said say says seen share shares shown stamps stretch taken tell tells there thought tick
    told took turned upto usual want wanted wants where whole worth written
"""
FORBIDDEN = frozenset(WORDS.split())
# "module:name" of identifiers that an external interface or an option of users requires.
ALLOWED_NAMES: dict[str, str] = {
    "lab.data.published.transport.archives:tell": "a method of files",
    "lab.data.recordings.options:known": "an option of users",
    "lab.estimators.forecaster:known": "an option of users",
}

MAX_FUNCTION_LINES = 80  # without the docstring
MAX_COMPLEXITY = 18
MAX_PARAMETERS = 12  # without self
# "module:function" of functions that may be larger, and why.
LARGE_FUNCTIONS: dict[str, str] = {}

MAX_LINES, MAX_LIBRARY_LINES, MAX_FILES = 104_800, 54_000, 600
# Lines of the library, lines of the lab and files of features since then.
FEATURES = {
    "memory benchmark, with the networks latch and latch-gru": (220, 1_390, 8),
    "accelerate": (660, 245, 2),
    "doctor": (2325, 1595, 9),
    "partial solutions": (40, 0, 0),
    "first gradient": (0, 140, 1),
    "C for microcontrollers (lab/export/c, bank_model.py), cost, devices": (0, 4_015, 16),
    "C in 32-bit integers, a page to play with": (0, 890, 3),
    "zoo": (1, 420, 3),
    "time limit of pages": (5, 210, 0),
    "types of calls, HTML of results": (80, 0, 0),
    "overview of entries and runs": (0, 330, 1),
    "s4d and lmu": (385, 5, 2),
    "LSTM and GRU with layer normalisation, zoneout": (900, 125, 2),
    "pages that lead with scores and forecasts": (5, 215, 1),
    "explanations, updates, file formats": (0, 1_590, 12),
    "early decisions": (0, 850, 3),
    "QUANT, RDST, ensembles of auto": (0, 700, 6),
    "covariates, forecasters of statsforecast": (5, 810, 3),
    "location-bank, two events": (0, 245, 2),
    "progress line by width, options as prose, file lock": (0, 75, 0),
}
MAX_LIBRARY_LINES += sum(library for library, _, _ in FEATURES.values())
MAX_LINES += sum(library + lab for library, lab, _ in FEATURES.values())
MAX_FILES += sum(files for _, _, files in FEATURES.values())

Function = ast.FunctionDef | ast.AsyncFunctionDef
METHODS = types.FunctionType | property | classmethod | staticmethod


MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in sorted(SOURCE.rglob("*.py"))
}


def nodes(module):
    return list(ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))))


def identifiers(node):
    """Return the names that a node of the syntax tree defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.arg():
            return [node.arg]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.Attribute(ctx=ast.Store()):
            return [node.attr]
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return [node.name] if node.name else []
        case ast.alias():
            return [node.asname] if node.asname else []
        case _:
            return []


def forbidden_names(module, tree):
    return sorted(
        {
            (node.lineno, name)
            for node in tree
            for name in identifiers(node)
            if name.strip("_").lower() in FORBIDDEN and f"{module}:{name}" not in ALLOWED_NAMES
        }
    )


def length(function):
    """Return the lines of a function without decorators and docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def complexity(function):
    """Return the cyclomatic complexity of a function, without functions inside it."""
    total, pending = 1, list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.If() | ast.IfExp() | ast.For() | ast.While() | ast.ExceptHandler():
                total += 1
            case ast.BoolOp():
                total += len(node.values) - 1
            case ast.comprehension():
                total += 1 + len(node.ifs)
            case ast.Match():
                total += len(node.cases) - 1
        pending += ast.iter_child_nodes(node)
    return total


def parameters(function):
    """Return the number of parameters of a function, without `self` and `cls`.

    Constructors declare the options of users, and solvers have the interface of torchdiffeq.
    """
    if function.name in ("__init__", "solve") or function.name.startswith("odeint"):
        return 0
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return sum(argument.arg not in ("self", "cls") for argument in every)


def large_functions(module, tree):
    limits = (MAX_FUNCTION_LINES, MAX_COMPLEXITY, MAX_PARAMETERS)
    large = []
    for node in tree:
        if isinstance(node, Function) and f"{module}:{node.name}" not in LARGE_FUNCTIONS:
            sizes = (length(node), complexity(node), parameters(node))
            if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
                large.append(f"{node.name}: %d lines, complexity %d, %d parameters" % sizes)
    return large


def test_names_are_terms_of_the_field_and_functions_are_small():
    problems = {}
    for module, path in MODULES.items():
        tree = nodes(module)
        if names := [*forbidden_names(module, tree), *large_functions(module, tree)]:
            problems[str(path)] = names
    assert not problems


@pytest.mark.parametrize(
    ("package", "least"),
    [
        ("analysis", 80),
        ("kernels", 60),
        ("lab", 500),
        ("models", 300),
        ("nn", 150),
        ("ode", 200),
        ("parametrizations", 30),
    ],
)
def test_methods_are_documented(package, least):
    """A method has a docstring, or overrides one of this library that has."""
    path = importlib.import_module(f"undamped.{package}").__path__
    names = [entry.name for entry in pkgutil.walk_packages(path, f"undamped.{package}.")]
    undocumented, count = [], 0
    for name in names:
        for target in vars(importlib.import_module(name)).values():
            if not isinstance(target, type) or target.__module__ != name:
                continue
            bases = [base for base in target.__mro__ if base.__module__.startswith("undamped")]
            fields = vars(target).get("__annotations__", {})
            for method, value in vars(target).items():
                if method in fields:
                    continue
                if getattr(getattr(value, "fget", None), "__name__", "") == "<lambda>":
                    continue  # an attribute, with a docstring below it
                if method[0] != "_" and isinstance(value, METHODS) and target.__name__[0] != "_":
                    documented = [vars(b)[method].__doc__ for b in bases if method in vars(b)]
                    undocumented += [f"{name}.{method}"] if not any(documented) else []
                    count += 1
    assert not undocumented and count > least


def replaced_constants(text):
    """Return the constants of this library that a test replaces by `setattr`, with their lines."""
    tree = list(ast.walk(ast.parse(text)))
    external = {
        alias.asname or alias.name.partition(".")[0]
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if not (getattr(node, "module", None) or alias.name).startswith("undamped")
    }
    constants = []
    for node in tree:
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=path), *_]):
                root, _, name = str(path).rpartition(".")
                ours = root.startswith("undamped")
            case ast.Call(
                func=ast.Attribute(attr="setattr"), args=[target, ast.Constant(value=name), *_]
            ):
                while isinstance(target, ast.Attribute):
                    target = target.value
                ours = not (isinstance(target, ast.Name) and target.id in external)
            case _:
                continue
        if ours and name.strip("_").isupper():
            constants.append((node.lineno, name))
    return constants


def test_thresholds_are_arguments():
    """A test passes a limit to the code instead of replacing a constant."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    constants = {path: replaced_constants(text) for path, text in texts.items()}
    assert not {path: names for path, names in constants.items() if names}


def test_exceptions_are_needed():
    """An exception whose name is gone is removed from the list."""
    for entry in (*ALLOWED_NAMES, *LARGE_FUNCTIONS):
        module, _, name = entry.partition(":")
        assert name in {n for node in nodes(module) for n in identifiers(node)}, entry


def test_the_rules_are_checked():
    assert len(FORBIDDEN) >= 60
    tree = ast.parse("def f(found, *, kept=1):\n    for one in x:\n        self.Said_ = one\n")
    names = {name for node in ast.walk(tree) for name in identifiers(node)}
    assert names == {"f", "found", "kept", "one", "Said_"}
    body = "\n".join(f"    if a{k} and b{k}:\n        c = [d for d in e if f]" for k in range(5))
    (function,) = ast.parse(f"def g(self, a, *, b):\n    '''Text.'''\n{body}\n").body
    assert (length(function), complexity(function), parameters(function)) == (11, 21, 2)
    assert replaced_constants(
        "from numba.core import config\n"
        "from undamped.kernels import scan\n"
        'patch.setattr(config, "CACHE_DIR", "")\n'
        'patch.setattr(scan.part, "_STEPS", 2)\n'
        'patch.setattr("undamped.lab.tasks.SIZE", 2)\n'
        'patch.setattr(scan, "run", None)\n'
    ) == [(4, "_STEPS"), (5, "SIZE")]


def test_the_source_is_not_too_large():
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    library = sum(n for path, n in lines.items() if not path.is_relative_to(SOURCE / "lab"))
    assert sum(lines.values()) <= MAX_LINES
    assert library <= MAX_LIBRARY_LINES
    assert len(lines) <= MAX_FILES
