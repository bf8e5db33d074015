"""The GPU kernels compiled for given architectures without a GPU, and the resources they use.

Triton compiles for a named target, down to machine code, without a driver. Registers, spilled
registers and shared memory are read from the listing of cuobjdump, which comes with Triton, or from
the notes of AMD's assembler.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from undamped.lab.report.table import Progress

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
        yield kernel.__name__ + _words(flags), kernel, flags


def _words(flags: dict[str, Any]) -> str:
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
    where = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    return triton.compile(source, target=where, options=dict(OPTIONS))


def measured(name: str, target: str, answer: Any) -> Compiled:
    """Return the resources of a compiled kernel."""
    if "cubin" in answer.asm:
        code = answer.asm["cubin"]
        registers, stack, local = _usage(code)
        return Compiled(name, target, registers, stack + local, answer.metadata.shared, len(code))
    notes = answer.asm["amdgcn"]
    vector, spilled, other, private = (
        int(re.findall(rf"\.{field}:\s+(\d+)", notes)[0])
        for field in (
            "vgpr_count",
            "vgpr_spill_count",
            "sgpr_spill_count",
            "private_segment_fixed_size",
        )
    )
    size = len(answer.asm["hsaco"])
    spilled_bytes = 4 * (spilled + other) + private
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
