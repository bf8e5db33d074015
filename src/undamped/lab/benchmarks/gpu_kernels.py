"""The GPU kernels, checked without a GPU: agreement, machine code, registers.

Without a GPU it can be checked that the kernels compute what the plain loops compute (in Triton's
interpreter, for every T), that they compile to machine code for named architectures, and which
resources that code uses. Its speed is not known.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Literal

from undamped._base.errors import MissingPackageError, OptionError
from undamped._base.registry import benchmarks
from undamped.kernels.dispatch import triton_is_there
from undamped.lab.benchmarks.gpu_targets import TARGETS, Compiled, compile_all
from undamped.lab.report.table import Progress, Report, Table, silent

STEPS = "1,7,129,1000"
TOLERANCE = 1e-5


@benchmarks.register("gpu-kernels")
def run(
    *,
    steps: str = STEPS,
    targets: str = ",".join(TARGETS),
    numbers: Literal["fp32", "fp64"] = "fp32",
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """The GPU kernels without a GPU: agreement with the plain loops, machine code, registers.

    Args:
        steps: Lengths of sequences in Triton's interpreter, separated by commas; a thousand steps
            of all kernels take some minutes. Empty for no such check.
        targets: Architectures to compile for, separated by commas: sm_80, sm_90, sm_100, gfx942 or
            others that Triton knows. Empty for no compilation.
        numbers: The type of numbers of the compiled kernels.
        quick: Short sequences and one target.
        progress: Called with a name after every check.

    Example:
        >>> result = run(steps="7", targets="")
    """
    if not triton_is_there():
        raise MissingPackageError(
            "bench gpu-kernels needs Triton (Linux only). Install it with "
            "pip install 'undamped[gpu]'.",
            name="triton",
        )
    counts = [_positive(word) for word in _words("1,7" if quick else steps)]
    cards = _words(TARGETS[0] if quick else targets)
    for card in cards:
        _check_target(card)
    errors = _errors(counts, progress) if counts else {}
    compiled = compile_all(tuple(cards), numbers, progress) if cards else []
    import triton

    return gpu_report(triton.__version__, numbers, errors, compiled)


def gpu_report(
    triton: str, numbers: str, errors: dict[str, dict[int, float]], compiled: list[Compiled]
) -> Report:
    """Return the report of all checks.

    Args:
        triton: The version of Triton.
        numbers: The type of numbers of the compiled kernels, fp32 or fp64.
        errors: Largest relative error in float32 by kernel and number of steps.
        compiled: Every kernel for every target.
    """
    agrees = all(error <= TOLERANCE for by_steps in errors.values() for error in by_steps.values())
    spilled = sum(kernel.spilled for kernel in compiled)
    tables, sentences = [], []
    if errors:
        steps = list(next(iter(errors.values())))
        rows = [(name, *(f"{values[n]:.1e}" for n in steps)) for name, values in errors.items()]
        header = ("largest relative error", *(f"{count} steps" for count in steps))
        tables.append(Table(header, rows))
        within = "within" if agrees else "NOT within"
        sentences.append(f"results and gradients {within} {TOLERANCE:g} of the plain loops")
    if compiled:
        targets = list(dict.fromkeys(kernel.target for kernel in compiled))
        cells: dict[str, list[str]] = {}
        for kernel in compiled:
            usage = (kernel.registers, kernel.spilled, kernel.shared, kernel.size)
            cells.setdefault(kernel.kernel, []).append(" / ".join(map(str, usage)))
        title = f"Registers / spilled / shared memory / code, bytes, {numbers}:"
        rows = [(name, *usages) for name, usages in cells.items()]
        tables.append(Table(("kernel", *targets), rows, title))
        sentences.append(f"{len(compiled)} kernels compiled, {spilled} bytes spilled")
    summary = Table((), (), f"Triton {triton}: {', '.join(sentences)}.")
    return Report(
        {"triton": triton, "numbers": numbers},
        compiled,
        [summary, *tables],
        numbers={"errors": errors, "agrees": agrees, "spilled_bytes": spilled},
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _positive(word: str) -> int:
    if word.isdigit() and int(word) > 0:
        return int(word)
    raise OptionError(f"steps must be positive integers such as {STEPS}, got '{word}'.")


def _check_target(card: str) -> None:
    if (card.startswith("sm_") and card[3:].isdigit()) or card.startswith("gfx"):
        return
    raise OptionError(f"targets must be architectures such as {','.join(TARGETS)}, got '{card}'.")


def _errors(counts: list[int], progress: Progress) -> dict[str, dict[int, float]]:
    """Run all cases in a separate process: Triton interprets all its kernels or none."""
    command = [
        sys.executable,
        "-m",
        "undamped.lab.benchmarks.gpu_agreement",
        ",".join(map(str, counts)),
    ]
    errors: dict[str, dict[int, float]] = {}
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            case = json.loads(line)
            errors.setdefault(case["kernel"], {})[case["steps"]] = case["error"]
            progress(f"{case['kernel']}, {case['steps']} steps")
    if process.returncode:
        raise OptionError(
            f"Triton's interpreter stopped with exit code {process.returncode} after "
            f"{sum(map(len, errors.values()))} cases; see the message above. Triton 3.2 or newer "
            "is needed."
        )
    return errors
