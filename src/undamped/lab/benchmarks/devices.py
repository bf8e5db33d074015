"""Models as C: answers, bytes and instructions on emulated boards, and samples per second here.

The compiler is arm-none-eabi-gcc with -O2, the emulator QEMU, which counts instructions. The rate
is that of one core of this machine with gcc -O3 -march=native.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.export import Subject
from undamped.lab.export.c.cost import TARGETS, instructions
from undamped.lab.export.c.emulator import BOARDS, COMPILER, EMULATOR, emulate
from undamped.lab.export.c.files import CFiles, c_files
from undamped.lab.export.c.integer_model import integer_step
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.models.sequence_model import SequenceModel

NETWORKS = ("unicornn", "lstm", "linoss", "rellstm")
INTEGER = NETWORKS[:3]
KINDS = ("float32", "int8", "integer")
"""Floating point, with matrices of 8 bits, and these with all arithmetic in integers."""
INPUTS, CLASSES, UNITS, LAYERS, OSCILLATORS = 6, 5, 32, 2, 50
HEADER = ("model", "weights", "core", "flash", "RAM", "instructions", "by count", "error")
RATES = ("model", "weights", "samples/s", "error")


@benchmark("devices")
def run(*, samples: int = 2_000_000, quick: bool = False, progress: Progress = silent) -> Report:
    """Models as C: answers, bytes and instructions on emulated boards, samples per second here.

    Args:
        samples: How many samples are timed on this machine.
        quick: One network on one board, briefly.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    for tool in (COMPILER, EMULATOR, "gcc"):
        if not shutil.which(tool):
            raise OptionError(f"The benchmark needs {tool}. Install it, for example with apt-get.")
    rows, rates = [], []
    results: dict[str, dict[str, object]] = {}
    for name in NETWORKS[:1] if quick else (*NETWORKS, "bank"):
        for kind in KINDS if name in INTEGER else KINDS[:2]:
            files = example_files(name, kind)
            for core in ("cortex-m4",) if quick else BOARDS:
                result = emulate(files, core)
                counted = round(instructions(files.program, TARGETS[core]))
                numbers = [
                    f"{n:,}" for n in (result.flash, result.ram, result.instructions, counted)
                ]
                rows.append([name, kind, core, *numbers, f"{result.error:.0e}"])
                results[f"{name} {kind} {core}"] = {**vars(result), "by_count": counted}
                progress(f"{name} {kind} {core}")
            rate, error = host_rate(files, samples // 20 if quick else samples)
            rates.append([name, kind, f"{rate:,.0f}", f"{error:.0e}"])
            results[f"{name} {kind} host"] = {"samples_per_second": rate, "error": error}
    title = (
        f"One sample: {INPUTS} inputs, {LAYERS} layers of {UNITS} units ({OSCILLATORS} oscillators "
        f"for the bank), {CLASSES} classes, --libm none. RAM is the state and the stack of a step; "
        "the error is the largest relative one in 24 steps."
    )
    tables = [Table(HEADER, rows, title, text_columns=3)]
    tables.append(Table(RATES, rates, "One core of this machine.", text_columns=2))
    return Report([], tables, {}, results, {"samples": samples})


def example(name: str) -> Subject:
    """Return a network with its initial weights, or a bank that was fitted to random series."""
    torch.manual_seed(0)
    if name != "bank":
        model = SequenceModel(name, INPUTS, CLASSES, hidden_size=UNITS, num_layers=LAYERS)
        return Subject(model.eval(), classes=())
    bank = OscillatorBank(TaskShape(INPUTS, CLASSES), oscillators=OSCILLATORS)
    batch = Batch(torch.randn(64, 100, INPUTS), torch.randint(CLASSES, (100,)))
    bank.fit_closed_form([batch])
    bank.refit([batch])
    return Subject(bank, classes=())


def example_files(name: str, kind: str) -> CFiles:
    """Return the C code of an example with a kind of arithmetic, an element of `KINDS`."""
    subject, integer = example(name), None
    if kind == "integer":
        series = torch.randn(100, 16, INPUTS, generator=torch.Generator().manual_seed(1))
        integer = integer_step(subject, [Batch(series)])
    return c_files(subject, name, libm=False, int8=kind != "float32", integer=integer)


def host_rate(files: CFiles, samples: int) -> tuple[float, float]:
    """Return samples per second on one core of this machine, and the largest relative error."""
    name = files.program.name
    with tempfile.TemporaryDirectory() as folder:
        source = files.write(Path(folder))[1]
        target = str(Path(folder) / "run")
        macro = f"-D{name.upper()}_SELFTEST={samples}"
        flags = ["-std=c99", "-O3", "-march=native", macro, "-o", target]
        subprocess.run(["gcc", *flags, str(source), "-lm"], check=True)
        output = subprocess.run([target], capture_output=True, text=True, check=True).stdout
    rate, error = re.search(r"(\d+) samples/s", output), re.search(r"error (\S+)", output)
    assert rate is not None and error is not None
    return float(rate[1]), float(error[1])
