"""A model as C files, which are compiled and compared with PyTorch before they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from undamped._base.errors import OptionError, RunError
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.export.c.bank import bank_program
from undamped.lab.export.c.integer_model import IntegerStep
from undamped.lab.export.c.program import (
    Program,
    header_text,
    identifier,
    network_program,
    source_text,
)
from undamped.lab.export.c.selftest import TOLERANCE, selftest_text
from undamped.lab.export.subject import Subject, refuse_divergence
from undamped.lab.files import write_atomically

COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class CFiles:
    """A model as C.

    Args:
        program: What the text was written from.
        header: The text of the header.
        source: The text of the C file, with the test of itself.
        libm: Whether functions of math.h are called.
    """

    program: Program
    header: str
    source: str
    libm: bool

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.h and NAME.c; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for ending, text in ((".h", self.header), (".c", self.source)):
            path = folder / f"{self.program.name}{ending}"
            write_atomically(path, lambda file, text=text: _write(file, text))
            paths.append(path)
        return paths

    def check(self, compiler: str) -> float:
        """Compile the test of the file, run it, and return its largest relative error."""
        name = self.program.name
        with tempfile.TemporaryDirectory() as folder:
            paths = self.write(Path(folder))
            test = Path(folder) / "test"
            flags = ["-std=c99", "-O2", f"-D{name.upper()}_SELFTEST", "-o", str(test)]
            command = [compiler, *flags, str(paths[1]), "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise RunError(
                    f"The C code was not written: {compiler} refused it with "
                    f"'{result.stderr.strip()[:200]}'. Please report this."
                )
            output = subprocess.run([str(test)], capture_output=True, text=True, check=False).stdout
        match = re.search(r"largest relative error (\S+)", output)
        return float(match.group(1)) if match else float("inf")


@dataclass(frozen=True)
class Export:
    """The result of an export.

    Args:
        files: The model as C.
        paths: The header and the C file.
        error: The largest relative error of the answers; None if there is no C compiler.
    """

    files: CFiles
    paths: list[Path]
    error: float | None


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="ascii", newline="\n")


def c_files(
    subject: Subject,
    name: str,
    *,
    libm: bool = True,
    int8: bool = False,
    integer: IntegerStep | None = None,
) -> CFiles:
    """Return a model as C.

    Args:
        subject: The model with its preparation.
        name: What all public names start with; it becomes a C identifier.
        libm: Whether to call the functions of math.h; otherwise the file brings its own.
        int8: Whether weights have 8 bits, with a scale per row.
        integer: The step in integers, which is written instead of the one in floating point.
    """
    program = program_of(subject, name, int8=int8, integer=integer)
    name = program.name
    test = selftest_text(subject, name, int8=int8, integer=integer)
    source = source_text(program, subject, libm=libm, test=test)
    return CFiles(program, header_text(program, subject), source, libm)


def program_of(
    subject: Subject, name: str, *, int8: bool = False, integer: IntegerStep | None = None
) -> Program:
    """Return the parts of the C file of a model; arguments are those of `c_files`."""
    refuse_divergence(subject.model)
    if subject.preparation is not None:
        subject.preparation.stream()  # refuses a model that answers whole windows
    if isinstance(subject.model, OscillatorBank):
        program = bank_program(subject, identifier(name), int8=int8)
    else:
        program = network_program(subject, identifier(name), int8=int8, integer=integer)
    program.sort_fields()
    return program


def export_c(
    subject: Subject,
    folder: Path,
    name: str,
    *,
    libm: bool = True,
    int8: bool = False,
    integer: IntegerStep | None = None,
    tolerance: float = TOLERANCE,
) -> Export:
    """Write a model as NAME.h and NAME.c.

    Args:
        subject: The model with its preparation.
        folder: Where the files are written.
        name: What all public names start with.
        libm: Whether to call the functions of math.h.
        int8: Whether weights have 8 bits.
        integer: The step in integers, if that is to be written.
        tolerance: The largest relative error with which files are written.

    """
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--out must be a folder for C files, and '{folder}' is a file.")
    files = c_files(subject, name, libm=libm, int8=int8, integer=integer)
    compiler = next((path for path in map(shutil.which, COMPILERS) if path), None)
    error = None if compiler is None else files.check(compiler)
    if error is not None and not error <= tolerance:
        raise RunError(
            f"{folder / files.program.name}.c was not written: its answers differ from PyTorch's "
            f"by {error:.2g}, more than {tolerance:g}. Rounding errors grow too fast in this model."
        )
    return Export(files, files.write(folder), error)
