"""The GPU kernels, checked without a GPU: agreement, machine code, registers.

Without a GPU it can be checked that the kernels compute what the plain loops compute (in Triton's
interpreter, for every T), that they compile to machine code for named architectures, and which
resources that code uses: registers, spilled registers and shared memory are read from the listing
of cuobjdump, which comes with Triton, or from the notes of AMD's assembler. Its speed is not known.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from undamped._base.errors import MissingPackageError, OptionError
from undamped.kernels.dispatch import has_triton
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.report.table import Progress, Report, Table, silent

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
FORMS = {1: "", 2: "complex", 4: "matrices"}
"""By SIZE, the number of coefficients per unit."""
TYPES = {"steps": "i32", "hidden": "i32", "remaining": "*i32", "sums": "*fp64"}
"""Of arguments that are not pointers to numbers of the kernel's type."""


@dataclass(frozen=True)
class Compiled:
    """A kernel for a target.

    Args:
        kernel: Its name and compile-time flags.
        target: The card's architecture.
        registers: Per thread.
        spilled: Bytes of spilled registers and other local memory.
        shared: Bytes of shared memory per program.
        size: Bytes of the code.
    """

    kernel: str
    target: str
    registers: int
    spilled: int
    shared: int
    size: int


def variants() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield name, kernel and compile-time flags of every variant, with sequence lengths."""
    from undamped.kernels.linear import gpu as linear
    from undamped.kernels.shared.columns import GPUColumns

    columns, both = GPUColumns(), (False, True)
    kernels: list[tuple[Any, dict[str, Any]]] = []
    for package in ("unicornn", "indrnn", "sru"):
        kernels += columns.kernels(package).values()
    for per_step, size in product(both, FORMS):
        flags = {"PER_STEP": per_step, "SIZE": size}
        kernels += [(linear.linear_forward, flags), (linear.linear_backward, flags)]
        kernels += [(linear.linear_summary, flags | {"BACKWARD": value}) for value in both]
    kernels += [(linear.forced_forward, {"VELOCITIES": value}) for value in both]
    kernels += [(linear.forced_summary, {"BACKWARD": value}) for value in both]
    kernels.append((linear.forced_backward, {}))
    for kernel, flags in kernels:
        yield kernel.__name__ + _flag_names(flags), kernel, flags


def _flag_names(flags: dict[str, Any]) -> str:
    names = [name.lower().replace("_", " ") for name, value in flags.items() if value is True]
    return "".join(f", {name}" for name in (*names, FORMS.get(flags.get("SIZE", 1))) if name)


def compiled_for(target: str, kernel: Any, flags: dict[str, Any], number: str = "fp32") -> Any:
    """Compile a kernel with Triton.

    Args:
        target: sm_ and a number for NVIDIA, gfx and a number for AMD.
        kernel: The Triton function.
        flags: Its compile-time flags, without LENGTHS.
        number: The type of its numbers, fp32 or fp64.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from undamped.kernels.shared.gpu import OPTIONS

    values = {**flags, "LENGTHS": True}
    signature = {
        name: "constexpr" if name.isupper() else TYPES.get(name, f"*{number}")
        for name in kernel.arg_names
    }
    source = ASTSource(kernel, signature, constexprs=values)
    nvidia = target.startswith("sm_")
    gpu = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    return triton.compile(source, target=gpu, options=dict(OPTIONS))


def measured(name: str, target: str, answer: Any) -> Compiled:
    """Return the resources of a compiled kernel."""
    if "cubin" in answer.asm:
        code = answer.asm["cubin"]
        registers, stack, local = _usage(code)
        return Compiled(name, target, registers, stack + local, answer.metadata.shared, len(code))
    notes = answer.asm["amdgcn"]
    vector, spilled, scalar, private = (
        int(re.findall(rf"\.{field}:\s+(\d+)", notes)[0])
        for field in (
            "vgpr_count",
            "vgpr_spill_count",
            "sgpr_spill_count",
            "private_segment_fixed_size",
        )
    )
    size = len(answer.asm["hsaco"])
    spilled_bytes = 4 * (spilled + scalar) + private
    return Compiled(name, target, vector, spilled_bytes, answer.metadata.shared, size)


def _usage(code: bytes) -> tuple[int, int, int]:
    """Return registers, bytes of stack and of local memory of a cubin."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(code)
        command = [str(knobs.nvidia.cuobjdump.path), "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return usage["REG"], usage["STACK"], usage["LOCAL"]


def compile_all(targets: tuple[str, ...], number: str, progress: Progress) -> list[Compiled]:
    """Compile every kernel for every target.

    Args:
        targets: Their names.
        number: The type of numbers, fp32 or fp64.
        progress: Called with a name after every kernel.
    """
    compiled = []
    for name, kernel, flags in variants():
        for target in targets:
            answer = compiled_for(target, kernel, flags, number)
            compiled.append(measured(name, target, answer))
            progress(f"{name} for {target}")
    return compiled


STEPS = "1,7,129,1000"
TOLERANCE = 1e-5


@benchmark("gpu-kernels")
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
    if not has_triton():
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
        compiled,
        [summary, *tables],
        numbers={"errors": errors, "agrees": agrees, "spilled_bytes": spilled},
        settings={"triton": triton, "numbers": numbers},
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
