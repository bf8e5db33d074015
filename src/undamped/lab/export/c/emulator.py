"""C code of a model on emulated boards: its answers, bytes of flash and stack, instructions.

QEMU runs boards with Cortex-M3, M4 and M7 cores. It counts instructions and not cycles.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from undamped._base.errors import RunError
from undamped.lab.export.c.files import CFiles

COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
BOARDS: dict[str, tuple[str, list[str]]] = {
    "cortex-m3": ("mps2-an385", ["-mcpu=cortex-m3"]),
    "cortex-m4": ("mps2-an386", ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
    "cortex-m7": ("mps2-an500", ["-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"]),
}
"""The board of QEMU and the compiler's options for each core; the M3 has no floating-point unit."""
_REPEATS = 4
_SECONDS = 300
_LINKER_SCRIPT = """\
MEMORY {
    FLASH (rx) : ORIGIN = 0x0, LENGTH = 4M
    RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M
}
SECTIONS {
    .text : {
        KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.ARM.extab*) KEEP(*(.init)) KEEP(*(.fini))
    } > FLASH
    .ARM.exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; } > FLASH
    .data : { *(.data*) . = ALIGN(8); KEEP(*(.init_array*)) KEEP(*(.fini_array*)) } > RAM
    .bss (NOLOAD) : {
        __bss_start__ = .; *(.bss*) *(COMMON) . = ALIGN(8); __bss_end__ = .;
    } > RAM
    end = .; __end__ = .;
}
"""
_START = """\
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))

void board_reset(void);
static void board_fault(void) { for (;;) { } }
__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))0x20400000, board_reset, board_fault, board_fault
};
"""
_RUN = """
#include <stdio.h>

void _start(void);
int model_main(void);

void board_reset(void)
{
    REGISTER(0xE000ED88) |= 0xFu << 20; /* the floating-point unit */
    _start();
}

int main(void)
{
    const int code = model_main();
    float answer[@_OUTPUTS];
    static #_state state;
    #_init(&state);
    REGISTER(0xE000E014) = 0xFFFFFF; /* SysTick counts down at 25 MHz */
    REGISTER(0xE000E018) = 0;
    REGISTER(0xE000E010) = 5;
    double ticks = 0.0;
    for (int n = 0; n < $ * @_TEST_STEPS; n++) {
        const int t = n % @_TEST_STEPS;
        const uint32_t start = REGISTER(0xE000E018);
        (void)#_step(&state, #_test_samples[t], %answer);
        ticks += (start - REGISTER(0xE000E018)) & 0xFFFFFF;
    }
    /* An instruction takes a nanosecond of the emulated clock, 40 of which are a tick. */
    printf("instructions %.0f\\n", 40.0 * ticks / ($ * @_TEST_STEPS));
    return code;
}
"""
_BARE = """
#include "#.h"

static #_state state;
volatile float sample[@_INPUTS], answer[@_OUTPUTS];

void board_reset(void)
{
    #_init(&state);
    for (;;) {
        (void)#_step(&state, (const float *)sample, %(float *)answer);
    }
}
"""


@dataclass(frozen=True)
class Emulation:
    """A model on a board.

    Args:
        flash: Bytes of code and constants, with the library functions that are called.
        ram: Bytes of the state and of the stack of a step, without those of library functions.
        instructions: Instructions per sample; None without an emulator.
        error: The largest relative error of the answers; None without an emulator.
    """

    flash: int
    ram: int
    instructions: int | None = None
    error: float | None = None


def can_compile() -> bool:
    """Return whether the compiler for boards is installed."""
    return shutil.which(COMPILER) is not None


def emulate(files: CFiles, core: str) -> Emulation:
    """Compile a model for a core, and run it where QEMU is installed.

    Args:
        files: The model as C.
        core: A key of `BOARDS`.
    """
    board, options = BOARDS[core]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = files.write(folder)[1]
        (folder / "board.ld").write_text(_LINKER_SCRIPT, encoding="ascii")
        flags = [*options, "-mthumb", "-O2", "-std=gnu99", "-ffunction-sections", "-I", name]
        flags += ["-T", str(folder / "board.ld"), "-Wl,--gc-sections"]
        bare = folder / "bare.c"
        bare.write_text(_START + _filled(_BARE, files), encoding="ascii")
        image, usage = (
            folder / "bare.elf",
            ["-nostartfiles", "-fstack-usage", "-dumpdir", f"{name}/"],
        )
        _run([COMPILER, *flags, *usage, "-o", str(image), str(bare), str(source), "-lm"], folder)
        flash = _flash(_run(["arm-none-eabi-size", "-A", str(image)], folder))
        stack = _stack(folder, files.program.name)
        ram = files.program.state_bytes + stack
        if not shutil.which(EMULATOR):
            return Emulation(flash, ram)
        prefix = files.program.name.upper()
        test = folder / "run.c"
        text = f'#define {prefix}_SELFTEST 1\n#define main model_main\n#include "{source.name}"\n'
        test.write_text(f"{_START}{text}#undef main\n{_filled(_RUN, files)}", encoding="ascii")
        image = folder / "run.elf"
        _run([COMPILER, *flags, "--specs=rdimon.specs", "-o", str(image), str(test), "-lm"], folder)
        machine = ["-M", board, "-nographic", "-icount", "shift=0", "-kernel", str(image)]
        semihosting = ["-semihosting-config", "enable=on,target=native"]
        output = _run([EMULATOR, *machine, *semihosting], folder, status=(0, 1))
    error = re.search(r"largest relative error (\S+)", output)
    instructions = re.search(r"instructions (\d+)", output)
    if error is None or instructions is None:
        raise RunError(f"The emulated {core} did not finish. Its output: '{output[:200]}'.")
    return Emulation(flash, ram, int(instructions[1]), float(error[1]))


def _filled(text: str, files: CFiles) -> str:
    """Return text of C with the names of a model."""
    name = files.program.name
    stamped = "float elapsed" in files.header
    bare = "1.0f, " if "sample[@_INPUTS]" in text else f"{name}_test_elapsed[t], "
    for mark, value in (
        ("%answer", f"{bare if stamped else ''}answer"),
        ("%(float", f"{bare if stamped else ''}(float"),
    ):
        text = text.replace(mark, value)
    return (
        text.replace("@", name.upper())
        .replace("#_", f"{name}_")
        .replace('"#.h"', f'"{name}.h"')
        .replace("$", str(_REPEATS))
    )


def _run(command: list[str], folder: Path, status: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=_SECONDS, check=False
    )
    if done.returncode not in status:
        raise RunError(f"{command[0]} failed: '{done.stderr.strip()[:300]}'.")
    return done.stdout


def _flash(text: str) -> int:
    """Return the bytes of all sections in flash, from the output of `size -A`."""
    sections = re.findall(r"^(\.\S+)\s+(\d+)\s+\d+", text, re.MULTILINE)
    names = (".text", ".ARM.exidx", ".data")
    return sum(int(size) for section, size in sections if section in names)


def _stack(folder: Path, name: str) -> int:
    """Return the bytes on the stack of a step and the functions that it calls in the file."""
    usage = "".join(path.read_text() for path in folder.glob("*.su"))
    sizes = re.findall(rf":{name}_(\w+)\t(\d+)", usage)
    return sum(int(size) for function, size in sizes if function not in ("init", "reset", "label"))
