"""The kernels for GPUs compiled for cards that are not here, and what the compiler says of them.

Triton compiles for a target that is named, down to the machine's own code, without a driver. Of
that code registers, spilled registers and shared memory are read: from the listing of cuobjdump,
which comes with Triton, or from the notes of AMD's assembler.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
WHOLE_NUMBERS = ("steps", "chunk", "hidden", "columns")
COUNTS = ("lengths", "remaining")
PAIRS = ["COMPLEX", "PER_STEP", "SUMMARY"]
DOUBLE_SUMS = ("grad_weight", "grad_step", "grad_bias", "grad_forget", "grad_reset")


@dataclass(frozen=True)
class Compiled:
    """A kernel for a target.

    Args:
        kernel: Its name, and what it is compiled for.
        target: The card's architecture.
        registers: Of each thread.
        spilled: Bytes of registers that did not fit, and of other local memory.
        shared: Bytes of shared memory of a program.
        size: Bytes of the code's file.
    """

    kernel: str
    target: str
    registers: int
    spilled: int
    shared: int
    size: int


def variants() -> Iterator[tuple[str, Any, dict[str, bool]]]:
    """Yield a name, a kernel and what it is compiled for: all that there is, lengths included."""
    from undamped.kernels.indrnn import gpu as independent
    from undamped.kernels.linear import gpu as linear
    from undamped.kernels.linear import oscillator_gpu as driven
    from undamped.kernels.sru import gpu as light
    from undamped.kernels.unicornn import gpu as oscillators

    both = (False, True)
    forward = oscillators.oscillator_forward
    yield "oscillator_forward", forward, {"KEEP": False, "KNOWN": False}
    yield "oscillator_forward, tanh kept", forward, {"KEEP": True, "KNOWN": False}
    yield "oscillator_forward, tanh known", forward, {"KEEP": False, "KNOWN": True}
    yield "oscillator_inverse", oscillators.oscillator_inverse, {}
    yield "oscillator_backward", oscillators.oscillator_backward, {}
    for way, relu in product(("forward", "backward"), both):
        name = f"independent_{way}"
        yield f"{name}, {'relu' if relu else 'tanh'}", getattr(independent, name), {"RELU": relu}
    yield "light_forward", light.light_forward, {}
    yield "light_backward", light.light_backward, {}
    for way, per_step, summary in product(("forward", "backward"), both, both):
        name = f"linear_{way}"
        chosen = {"PER_STEP": per_step, "SUMMARY": summary}
        yield name + _words(chosen), getattr(linear, name), chosen
    for way, *flags in product(("forward", "backward"), both, both, both):
        name = f"pair_{way}"
        chosen: dict[str, bool] = dict(zip(PAIRS, flags, strict=True))
        yield name + _words(chosen), getattr(linear, name), chosen
    for summary, velocities in ((False, False), (True, False), (False, True)):
        chosen = {"SUMMARY": summary, "VELOCITIES": velocities}
        yield "driven_forward" + _words(chosen), driven.driven_forward, chosen
    for summary in both:
        chosen = {"SUMMARY": summary}
        yield "driven_backward" + _words(chosen), driven.driven_backward, chosen


def _words(chosen: dict[str, bool]) -> str:
    names = [name.lower().replace("_", " ") for name, on in chosen.items() if on]
    return "".join(f", {name}" for name in names)


def compiled_for(target: str, kernel: Any, chosen: dict[str, bool], number: str = "fp32") -> Any:
    """Compile a kernel; return Triton's answer.

    Args:
        target: sm_ and a number for NVIDIA, gfx and a number for AMD.
        kernel: The Triton function.
        chosen: What it is compiled for; lengths are read.
        number: The type of its numbers, fp32 or fp64.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from undamped.kernels.shared.gpu import BLOCK, OPTIONS, STAGES

    values = {**chosen, "LENGTHS": True, "BLOCK": BLOCK, "STAGES": STAGES}
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
    """Read what a compiled kernel takes of a card."""
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
    lost = 4 * (spilled + other) + private
    return Compiled(name, target, vector, lost, answer.metadata.shared, size)


def _usage(code: bytes) -> tuple[int, int, int]:
    """Return registers, bytes of stack and of local memory of a cubin."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(code)
        command = [str(knobs.nvidia.cuobjdump.path), "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return found["REG"], found["STACK"], found["LOCAL"]


def compile_all(
    targets: tuple[str, ...], number: str, tick: Callable[[str], None]
) -> list[Compiled]:
    """Compile every kernel for every target.

    Args:
        targets: Their names.
        number: The type of numbers, fp32 or fp64.
        tick: Called with a name after every kernel.
    """
    found = []
    for name, kernel, chosen in variants():
        for target in targets:
            found.append(measured(name, target, compiled_for(target, kernel, chosen, number)))
            tick(f"{name} for {target}")
    return found
