"""What a model costs on a device: bytes, multiply-adds, cycles and samples per second.

Instructions are counted operation by operation. The counts per operation of Cortex-M cores were
fitted to instructions in QEMU (`undamped bench devices` repeats the comparison); those of other
targets are estimates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name
from undamped.lab.export.c.emulator import BOARDS, Emulation, can_compile, emulate
from undamped.lab.export.c.files import CFiles, program_of
from undamped.lab.export.c.functions import HELPERS
from undamped.lab.export.c.program import Program
from undamped.lab.export.subject import Subject

_DIVISIONS = frozenset({"div", "reciprocal"})
_FLOATING = frozenset({"add", "sub", "mul", "neg"})
# Instructions of fixed-point arithmetic on a Cortex-M3; a multiply-add with a weight is `_PRODUCT`.
_INTEGER = {"fixed_right": 5, "fixed_mul": 16.5, "fixed_add": 16.5, "fixed_sub": 16.5}
_INTEGER |= {"fixed_left": 12, "fixed_curve": 28, "fixed_div": 100}
_PRODUCT = 3.3
_STATEMENT, _FIXED = 16, 500  # bytes of code per C statement, and of everything else
_LIBM, _SOFT_FLOAT = 2000, 2000  # bytes of functions that the linker adds
_STACK = 80  # bytes of registers and addresses that a step saves


@dataclass(frozen=True)
class Target:
    """A processor.

    Args:
        product: Instructions per multiply-add with a weight.
        conversion: Further instructions for a weight of 8 bits.
        operation: Instructions per addition or multiplication of other numbers.
        selection: Instructions per comparison, selection or conversion.
        division: Instructions per division.
        function: Instructions per tanh, exp and similar functions of the small library.
        per_instruction: Cycles per instruction.
        clock: A usual clock, in MHz.
        soft_float: Whether floating-point arithmetic is done by functions.
        integer: Instructions per instruction of a Cortex-M3 in fixed-point arithmetic.
        text: A description.
    """

    product: float
    conversion: float
    operation: float
    selection: float
    division: float
    function: float
    per_instruction: float
    clock: float
    soft_float: bool
    integer: float
    text: str


TARGETS: dict[str, Target] = {
    "cortex-m0+": Target(140, 40, 68, 18, 150, 1800, 1.3, 48, True, 2, "ARMv6-M without FPU"),
    "cortex-m3": Target(91, 27, 45, 12, 80, 1170, 1.3, 72, True, 1, "ARMv7-M without FPU"),
    "cortex-m4": Target(3.6, 2.2, 2.2, 2, 3, 38, 1.4, 100, False, 1, "ARMv7E-M with FPU"),
    "cortex-m7": Target(3.6, 2.2, 2.2, 2, 3, 39, 0.9, 400, False, 1, "as M4, with dual issue"),
    "rv32imc": Target(
        145, 45, 72, 20, 180, 1900, 1.2, 160, True, 1.2, "RISC-V without FPU, as ESP32-C3"
    ),
    "esp32": Target(5, 3, 3, 3, 20, 60, 1.4, 240, False, 1.1, "Xtensa LX6 with FPU"),
    "x86": Target(0.09, 0.05, 0.1, 0.1, 0.5, 1.5, 1, 3000, False, 0.2, "a core with AVX2, gcc -O3"),
}
"""Processors by name."""


@dataclass(frozen=True)
class DeviceCost:
    """What a model costs on a target.

    Args:
        target: The name of the target.
        flash: Bytes of code and constants.
        ram: Bytes of the state and of the stack of a step.
        products: Multiply-adds with weights per sample.
        cycles: Cycles per sample.
        rate: Samples per second at the clock.
        clock: MHz.
        compiled: The same by compiler and emulator, where they are installed.
    """

    target: str
    flash: int
    ram: int
    products: int
    cycles: int
    rate: float
    clock: float
    compiled: Emulation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def instructions(program: Program, target: Target) -> float:
    """Return the estimated number of instructions of a step."""
    if program.integer:
        counts = program.operations.items()
        count = sum(times * _INTEGER.get(name, 3) for name, times in counts)
        return (program.products * _PRODUCT + count) * target.integer
    total = program.products * (target.product + program.constants.int8 * target.conversion)
    for name, count in program.operations.items():
        cost = target.selection
        if name in HELPERS:
            cost = target.function
        elif name in _DIVISIONS:
            cost = target.division
        elif name in _FLOATING:
            cost = target.operation
        total += count * cost
    return total


def estimate(
    program: Program, name: str, *, libm: bool = False, clock: float | None = None
) -> DeviceCost:
    """Return what a model costs on a target, by counting.

    Args:
        program: The parts of its C file.
        name: A key of `TARGETS`.
        libm: Whether functions of math.h are called.
        clock: MHz; by default a usual one.
    """
    if name not in TARGETS:
        raise unknown_name("target", name, list(TARGETS))
    if clock is not None and not clock > 0:
        raise OptionError(f"--clock must be a positive number of MHz, got {clock:g}.")
    target = TARGETS[name]
    texts = (*program.prepare, *program.statements, *program.functions)
    code = _STATEMENT * sum(text.count(";") for text in texts) + _FIXED
    code += _LIBM * libm + _SOFT_FLOAT * target.soft_float
    cycles = max(1, round(instructions(program, target) * target.per_instruction))
    clock = clock or target.clock
    ram = program.state_bytes + program.work_bytes + _STACK
    flash = program.constants.nbytes + code
    return DeviceCost(name, flash, ram, program.products, cycles, clock * 1e6 / cycles, clock)


def device_cost(files: CFiles, name: str, *, clock: float | None = None) -> DeviceCost:
    """Return what a model costs on a target, also by compiler and emulator where they exist.

    Args:
        files: The model as C.
        name: A key of `TARGETS`.
        clock: MHz; by default a usual one.
    """
    cost = estimate(files.program, name, libm=files.libm, clock=clock)
    if name not in BOARDS or not can_compile():
        return cost
    return replace(cost, compiled=emulate(files, name))


def device_sentences(subject: Subject, name: str = "cortex-m4") -> list[str]:
    """Return a sentence about the cost on a target; none for a model that has no C code."""
    try:
        cost = estimate(program_of(subject, "model"), name)
    except OptionError:
        return []
    return [
        f"As C code (undamped export --c) it needs about {cost.flash / 1024:,.0f} KB of flash and "
        f"{cost.ram / 1024:,.1f} KB of RAM, and a {name} at {cost.clock:g} MHz processes about "
        f"{cost.rate:,.0f} samples per second."
    ]


def refuse_large(cost: DeviceCost, *, flash: int | None, ram: int | None) -> None:
    """Raise an error if a device has less memory than a model needs."""
    compiled = cost.compiled or cost
    for part, needed, available in (
        ("flash", compiled.flash, flash),
        ("RAM", compiled.ram, ram),
    ):
        if available is not None and needed > available:
            raise OptionError(
                f"The model needs {needed:,} bytes of {part} on {cost.target}, more than "
                f"{available:,}. Train a smaller one, or use --int8 for smaller weights."
            )
