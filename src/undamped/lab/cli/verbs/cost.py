"""`undamped cost RUN`: what a model needs on a microcontroller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Cost
from undamped.lab.cli.screen import console, print_json
from undamped.lab.export import subject_of
from undamped.lab.report.table import Table
from undamped.lab.training.run import Run

if TYPE_CHECKING:
    from undamped.lab.export.c.cost import DeviceCost


def cost(options: Cost) -> None:
    """Print bytes, cycles and samples per second on some targets."""
    from undamped.lab.export.c.cost import TARGETS, device_cost, estimate, refuse_large
    from undamped.lab.export.c.files import c_files, program_of
    from undamped.lab.export.c.int8 import calibrated

    if options.integer and not options.int8:
        raise OptionError("--integer applies to --int8 only. Add --int8, or leave it out.")
    run = Run.open(options.run)
    subject, name, libm = subject_of(run), run.path.resolve().name, options.libm == "math"
    integer = calibrated(run, subject) if options.integer else None
    if options.target:
        files = c_files(subject, name, libm=libm, int8=options.int8, integer=integer)
        costs = [device_cost(files, target, clock=options.clock) for target in options.target]
    else:
        program = program_of(subject, name, int8=options.int8, integer=integer)
        costs = [estimate(program, target, libm=libm, clock=options.clock) for target in TARGETS]
    for entry in costs:
        refuse_large(entry, flash=options.flash, ram=options.ram)
    if options.as_json:
        print_json([entry.to_dict() for entry in costs])
    else:
        console().print(_table(costs).terminal())


def _table(costs: Sequence[DeviceCost]) -> Table:
    """Return a table of costs, with the results of compiler and emulator where there are any."""
    header = ["target", "flash", "RAM", "multiply-adds", "cycles", "samples/s", "at MHz"]
    rows, notes = [], []
    for cost in costs:
        numbers = (cost.flash, cost.ram, cost.products, cost.cycles, round(cost.rate))
        rows.append([cost.target, *[f"{number:,}" for number in numbers], f"{cost.clock:g}"])
        if cost.compiled is not None:
            compiled = cost.compiled
            emulated = ""
            if compiled.instructions is not None:
                emulated = f", {compiled.instructions:,} instructions per sample in QEMU"
            notes.append(
                f"{cost.target}: {compiled.flash:,} bytes of flash and {compiled.ram:,} of RAM by "
                f"the compiler{emulated}."
            )
    return Table(header, rows, "Estimated by counting operations", notes)
