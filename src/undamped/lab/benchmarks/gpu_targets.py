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
WHOLE_NUMBERS = ("steps", "chunk", "hidden", "columns")
COUNTS = ("lengths", "remaining")
PAIRS = ["COMPLEX", "PER_STEP", "SUMMARY"]
DOUBLE_SUMS = ("grad_weight", "grad_step", "grad_bias", "grad_forget", "grad_reset")


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


def variants() -> Iterator[tuple[str, Any, dict[str, bool]]]:
    """Yield name, kernel and compile-time flags of every variant, with sequence lengths."""
    from undamped.kernels.indrnn import gpu as independent
    from undamped.kernels.linear import gpu as linear
    from undamped.kernels.linear import oscillator_gpu as oscillator
    from undamped.kernels.sru import gpu as light
    from undamped.kernels.unicornn import gpu as oscillators

    both = (False, True)
    forward = oscillators.oscillator_forward
    yield "oscillator_forward", forward, {"KEEP": False, "KNOWN": False}
    yield "oscillator_forward, tanh kept", forward, {"KEEP": True, "KNOWN": False}
    yield "oscillator_forward, tanh known", forward, {"KEEP": False, "KNOWN": True}
    yield "oscillator_inverse", oscillators.oscillator_inverse, {}
    yield "oscillator_backward", oscillators.oscillator_backward, {}
    for direction, relu in product(("forward", "backward"), both):
        name = f"independent_{direction}"
        yield f"{name}, {'relu' if relu else 'tanh'}", getattr(independent, name), {"RELU": relu}
    yield "light_forward", light.light_forward, {}
    yield "light_backward", light.light_backward, {}
    for direction, per_step, summary in product(("forward", "backward"), both, both):
        name = f"linear_{direction}"
        flags = {"PER_STEP": per_step, "SUMMARY": summary}
        yield name + _words(flags), getattr(linear, name), flags
    for direction, *values in product(("forward", "backward"), both, both, both):
        name = f"pair_{direction}"
        flags: dict[str, bool] = dict(zip(PAIRS, values, strict=True))
        yield name + _words(flags), getattr(linear, name), flags
    for summary, velocities in ((False, False), (True, False), (False, True)):
        flags = {"SUMMARY": summary, "VELOCITIES": velocities}
        yield "driven_forward" + _words(flags), oscillator.forced_forward, flags
    for summary in both:
        flags = {"SUMMARY": summary}
        yield "driven_backward" + _words(flags), oscillator.forced_backward, flags


def _words(flags: dict[str, bool]) -> str:
    names = [name.lower().replace("_", " ") for name, on in flags.items() if on]
    return "".join(f", {name}" for name in names)


def compiled_for(target: str, kernel: Any, flags: dict[str, bool], number: str = "fp32") -> Any:
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

    from undamped.kernels.shared.gpu import BLOCK, OPTIONS, STAGES

    values = {**flags, "LENGTHS": True, "BLOCK": BLOCK, "STAGES": STAGES}
    signature = {name: _type(name, number) for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=values)
    nvidia = target.startswith("sm_")
    where = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    return triton.compile(source, target=where, options=dict(OPTIONS))


def _type(name: str, number: str) -> str:
    if name.isupper():
        return "constexpr"
    if name in WHOLE_NUMBERS:
        return "i32"
    if name in COUNTS:
        return "*i32"
    return "*fp64" if name in DOUBLE_SUMS else f"*{number}"


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
