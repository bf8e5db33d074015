"""The kernels for GPUs, checked where there is no GPU: agreement, machine code, registers.

What can be known without a card: that the kernels compute what the plain loops compute (Triton's
interpreter, every T), that they compile to machine code for cards that are named, and what that
code takes of them. How fast it is, is not known.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from undamped._base.errors import MissingPackageError, OptionError, explain
from undamped._base.registry import benchmarks
from undamped.kernels.dispatch import triton_is_there
from undamped.lab.benchmarks.gpu_targets import TARGETS, Compiled, compile_all
from undamped.lab.benchmarks.tables import markdown_table, terminal_table

STEPS = "1,7,129,1000"
TOLERANCE = 1e-5


@dataclass(frozen=True)
class GPUKernels:
    """All checks.

    Args:
        triton: The version of Triton.
        numbers: The type of numbers of what was compiled, fp32 or fp64.
        errors: Largest relative error in float32 by kernel and number of steps.
        compiled: Every kernel for every target.
    """

    triton: str
    numbers: str
    errors: dict[str, dict[int, float]]
    compiled: list[Compiled]

    @property
    def agrees(self) -> bool:
        """Whether all errors are small enough."""
        return all(e <= TOLERANCE for found in self.errors.values() for e in found.values())

    @property
    def spills(self) -> int:
        """How many bytes are spilled in all."""
        return sum(one.spilled for one in self.compiled)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**asdict(self), "agrees": self.agrees, "spilled_bytes": self.spills}

    def _agreement(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        steps = list(next(iter(self.errors.values()), {}))
        header = ("largest relative error", *(f"{count} steps" for count in steps))
        rows = [
            (name, *(f"{found[count]:.1e}" for count in steps))
            for name, found in self.errors.items()
        ]
        return header, rows

    def _code(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        targets = list(dict.fromkeys(one.target for one in self.compiled))
        rows: dict[str, list[str]] = {}
        for one in self.compiled:
            cell = f"{one.registers} / {one.spilled} / {one.shared} / {one.size}"
            rows.setdefault(one.kernel, [one.kernel]).append(cell)
        return ("kernel", *targets), [tuple(row) for row in rows.values()]

    def _said(self) -> str:
        parts = []
        if self.errors:
            word = "within" if self.agrees else "NOT within"
            parts.append(f"results and gradients {word} {TOLERANCE:g} of the plain loops")
        if self.compiled:
            parts.append(f"{len(self.compiled)} kernels compiled, {self.spills} bytes spilled")
        return f"Triton {self.triton}: {', '.join(parts)}"

    def markdown(self) -> str:
        """Return the tables for docs/performance.md."""
        lines = [self._said() + ".", ""]
        if self.errors:
            lines += [markdown_table(*self._agreement()), ""]
        if self.compiled:
            lines += [f"Registers / spilled / shared memory / code, bytes, {self.numbers}:", ""]
            lines += [markdown_table(*self._code())]
        return "\n".join(lines) + "\n"

    def summary(self) -> Any:
        """Return tables for the terminal."""
        from rich.console import Group

        tables: list[Any] = []
        if self.errors:
            tables.append(terminal_table(*self._agreement(), "under Triton's interpreter"))
        if self.compiled:
            title = f"registers / spilled / shared / code, bytes, {self.numbers}"
            tables.append(terminal_table(*self._code(), title))
        return Group(*tables, self._said())

    def figures(self) -> dict[str, Any]:
        """There is nothing to draw."""
        return {}


@benchmarks.register("gpu-kernels")
def run(
    *,
    steps: str = STEPS,
    targets: str = ",".join(TARGETS),
    numbers: Literal["fp32", "fp64"] = "fp32",
    quick: bool = False,
    tick: Callable[[str], None] | None = None,
) -> GPUKernels:
    """The kernels for GPUs without a GPU: agreement with the plain loops, machine code, registers.

    Args:
        steps: Lengths of sequences under Triton's interpreter, with commas between them; a
            thousand steps of everything take some minutes. Nothing for no such check.
        targets: What to compile for, with commas between them: sm_80, sm_90, sm_100, gfx942 or
            others that Triton knows. Nothing for no compilation.
        numbers: The type of numbers of what is compiled.
        quick: Short sequences and one target, to see that everything runs.
        tick: Called with a name after every check, for a progress bar.

    Example:
        >>> result = run(steps="7", targets="")
    """
    if not triton_is_there():
        raise MissingPackageError(
            explain(
                "bench gpu-kernels",
                expected="Triton, which is for Linux",
                got="none",
                remedy="Install it with: pip install 'undamped[gpu]'",
            ),
            name="triton",
        )
    counts = [_positive(word) for word in _words("1,7" if quick else steps)]
    cards = _words(TARGETS[0] if quick else targets)
    for card in cards:
        _check_target(card)
    note = tick or (lambda name: None)
    errors = _errors(counts, note) if counts else {}
    compiled = compile_all(tuple(cards), numbers, note) if cards else []
    import triton

    return GPUKernels(triton.__version__, numbers, errors, compiled)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _positive(word: str) -> int:
    if word.isdigit() and int(word) > 0:
        return int(word)
    raise OptionError(
        explain(
            "steps",
            expected="whole numbers above zero with commas between them",
            got=f"'{word}'",
            remedy=f"For example steps={STEPS}.",
        )
    )


def _check_target(card: str) -> None:
    if (card.startswith("sm_") and card[3:].isdigit()) or card.startswith("gfx"):
        return
    raise OptionError(
        explain(
            "targets",
            expected="sm_ and a number, or gfx and a number",
            got=f"'{card}'",
            remedy=f"For example targets={','.join(TARGETS)}.",
        )
    )


def _errors(counts: list[int], tick: Callable[[str], None]) -> dict[str, dict[int, float]]:
    """Run all cases in a process of its own: Triton interprets all its kernels or none."""
    command = [
        sys.executable,
        "-m",
        "undamped.lab.benchmarks.gpu_agreement",
        ",".join(map(str, counts)),
    ]
    found: dict[str, dict[int, float]] = {}
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None  # it was asked for
        for line in process.stdout:
            case = json.loads(line)
            found.setdefault(case["kernel"], {})[case["steps"]] = case["error"]
            tick(f"{case['kernel']}, {case['steps']} steps")
    if process.returncode:
        raise OptionError(
            explain(
                "bench gpu-kernels",
                expected="all cases to run under Triton's interpreter",
                got=f"exit {process.returncode} after {sum(map(len, found.values()))} of them",
                remedy="The message above says why; Triton 3.2 or newer is expected.",
            )
        )
    return found
