"""A model as a C file and its header: preparation, step, names, and a test of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import LONGEST_GAP
from undamped.lab.export.c.functions import helper_text
from undamped.lab.export.c.integer_model import IntegerStep
from undamped.lab.export.c.lower import TYPES, Constants, lower
from undamped.lab.export.c.lower import literal as number
from undamped.lab.export.c.steps import step_of
from undamped.lab.export.c.trace import trace
from undamped.lab.export.subject import Subject
from undamped.version import __version__

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "auto break case char const continue default do double else enum extern float for goto if "
        "inline int long main register restrict return short signed sizeof static struct switch "
        "typedef union unsigned void volatile while "
        # Headers of the standard library, which a file of the same name would hide.
        "assert complex ctype errno fenv inttypes iso646 limits locale math setjmp signal stdarg "
        "stdbool stddef stdint stdio stdlib string tgmath time wchar wctype",
    )
)
_ROW = 8  # numbers per line of a table


@dataclass
class Program:
    """The parts of a C file.

    Args:
        name: What all public names start with.
        constants: Weights and other tables.
        helpers: Names of the mathematical functions that are called.
        fields: The fields of the state: C type and size by name.
        initial: The initial values of fields that do not start at zero.
        prepare: Statements from `sample` to `x`.
        statements: Statements from `x` to `answer` and the next state.
        declarations: Local variables of the step.
        functions: Definitions of functions that the statements call.
        work: Elements of the work arrays by C type.
        products: Multiplications with weights in a step.
        operations: Elementwise operations of a step by name.
        integer: Whether the step computes in integers.
    """

    name: str
    constants: Constants
    helpers: set[str] = field(default_factory=set)
    fields: dict[str, tuple[str, int]] = field(default_factory=dict)
    initial: dict[str, Tensor] = field(default_factory=dict)
    prepare: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    products: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    integer: bool = False

    @property
    def state_bytes(self) -> int:
        """Bytes of the state, whose fields are sorted by alignment."""
        sizes = [_BYTES[kind] * size for kind, size in self.fields.values()]
        alignment = max((_BYTES[kind] for kind, _ in self.fields.values()), default=1)
        return -(-sum(sizes) // alignment) * alignment

    def sort_fields(self) -> None:
        """Sort the fields of the state by alignment, so that there is no padding between them."""
        fields = sorted(self.fields.items(), key=lambda entry: -_BYTES[entry[1][0]])
        self.fields = dict(fields)

    @property
    def work_bytes(self) -> int:
        """Bytes of the work arrays, which are on the stack during a step."""
        return sum(_BYTES[kind] * size for kind, size in self.work.items())


_BYTES = {"float": 4, "double": 8, "int32_t": 4, "uint32_t": 4, "uint8_t": 1}


def identifier(text: str) -> str:
    """Return a C identifier that resembles a text."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or "model"
    return f"model_{name}" if name[0].isdigit() or name.lower() in _RESERVED else name


def string(text: str) -> str:
    """Return a text as a C string literal; it cannot end early, nor contain a trigraph."""
    parts = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        plain = 32 <= byte < 127 and char not in '"\\?%'
        parts.append(char if plain else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'


def network_program(
    subject: Subject, name: str, *, int8: bool = False, integer: IntegerStep | None = None
) -> Program:
    """Return the program of a model that is a graph of operators."""
    step = step_of(subject)
    program = Program(name, Constants(name, int8), integer=integer is not None)
    write_preparation(program, subject, step.width, symbols=step.symbols, elapsed=step.elapsed)
    program.declarations.append(f"float x[{step.width}];")
    program.work["float"] = step.width
    state, arrays, answer = step.state, {"x": "x"}, "answer"
    if integer is None:
        nodes = trace(step.function, {"x": torch.zeros(1, step.width), **state})
    else:
        nodes, state = integer.graph.outputs, integer.initial()
        arrays, answer = {"x": "fixed_x"}, "fixed_answer"
        _convert_input(program, step.width, integer.graph.bits["x"])
    arrays |= {field: f"state->{field}" for field in state}
    targets = [answer, *[arrays[field] for field in state]]
    code = lower(dict(zip(targets, nodes, strict=True)), arrays, program.constants, program.helpers)
    for field_name, start in state.items():
        program.fields[field_name] = (TYPES[start.dtype], start.numel())
        if bool((start != 0).any()):
            program.initial[field_name] = start
    program.statements += code.lines
    for kind, size in code.work.items():
        program.declarations.append(f"{kind} work_{kind.removesuffix('_t')}[{size}];")
        program.work[kind] = program.work.get(kind, 0) + size
    program.products, program.operations = code.products, code.operations
    if integer is not None:
        _convert_answer(program, nodes[0].size, integer.graph.answer_bits)
    return program


def _convert_input(program: Program, width: int, bits: int) -> None:
    program.helpers.add("fixed")
    program.declarations.append(f"int32_t fixed_x[{width}];")
    program.work["int32_t"] = program.work.get("int32_t", 0) + width
    scale = number(2.0**bits, torch.float32)
    program.prepare += [
        f"for (int i = 0; i < {width}; i++) {{",
        f"    fixed_x[i] = {program.name}_fixed(x[i] * {scale});",
        "}",
    ]


def _convert_answer(program: Program, outputs: int, bits: int) -> None:
    program.declarations.append(f"int32_t fixed_answer[{outputs}];")
    program.work["int32_t"] = program.work.get("int32_t", 0) + outputs
    scale = number(2.0**-bits, torch.float32)
    program.statements += [
        f"for (int i = 0; i < {outputs}; i++) {{",
        f"    answer[i] = (float)fixed_answer[i] * {scale};",
        "}",
    ]


def write_preparation(
    program: Program,
    subject: Subject,
    width: int,
    *,
    symbols: Tensor | None = None,
    elapsed: bool = False,
    allow_missing: bool = False,
) -> None:
    """Write the statements from a raw sample to the input of the model.

    Args:
        program: To which statements and fields are added.
        subject: The model with its preparation.
        width: Number of features of the input.
        symbols: A table of vectors by symbol, where samples are symbols.
        elapsed: Whether the last feature is the time since the last sample in typical gaps; by
            default it is ln(1 + that).
        allow_missing: Whether the model itself handles missing values.
    """
    lines, prepared = program.prepare, subject.preparation
    prefix = program.name.upper()
    if symbols is not None:
        table = program.constants.name(symbols)
        lines += [
            f"if (!(sample[0] >= 0.0f && sample[0] < {len(symbols)}.0f &&",
            "      sample[0] == (float)(int)sample[0])) {",
            f"    return {prefix}_BAD_SYMBOL;",
            "}",
            f"for (int i = 0; i < {width}; i++) {{",
            f"    x[i] = {table}[(int)sample[0] * {width} + i];",
            "}",
        ]
        return
    if prepared is None:
        scale = "sample[i] / 255.0f" if subject.input_kind == "pixels" else "sample[i]"
        lines += _finite(f"{width}", "sample[i]", prefix, allow_missing=allow_missing)
        lines += [f"for (int i = 0; i < {width}; i++) {{", f"    x[i] = {scale};", "}"]
        return
    channels = len(prepared.channels)
    order = [prepared.raw_channels.index(channel) for channel in prepared.channels]
    source = "sample[i]"
    if order != list(range(channels)):
        table = program.constants.name(torch.tensor(order, dtype=torch.int32))
        source = f"sample[{table}[i]]"
    lines += _finite(f"{channels}", source, prefix, allow_missing=True)
    if prepared.timestamps:
        _write_elapsed(program, subject, width, elapsed)
    mean = torch.tensor(prepared.mean, dtype=torch.float64)
    high = mean.float()
    names = [
        program.constants.name(part)
        for part in (
            high,
            (mean - high.double()).float(),
            (1 / torch.tensor(prepared.std, dtype=torch.float64)).float(),
        )
    ]
    program.fields["last"] = ("float", channels)
    mask = f"x[{channels} + i] = (value == value) ? 1.0f : 0.0f;"
    lines += [
        "/* The mean in two parts, so that a large mean costs no precision. */",
        f"for (int i = 0; i < {channels}; i++) {{",
        f"    const float value = {source};",
        f"    const float standard = ((value - {names[0]}[i]) - {names[1]}[i]) * {names[2]}[i];",
        "    if (value == value) {",
        "        state->last[i] = standard;",
        "    }",
        "    x[i] = state->last[i];",
        *([f"    {mask}"] if prepared.missing == "mask" else []),
        "}",
    ]


def _finite(count: str, source: str, prefix: str, *, allow_missing: bool) -> list[str]:
    """Return statements that refuse infinite values before anything changes."""
    test = "!(value - value == 0.0f)"
    if allow_missing:
        test = "value == value && value - value != 0.0f"
    return [
        f"for (int i = 0; i < {count}; i++) {{",
        f"    const float value = {source};",
        f"    if ({test}) {{",
        f"        return {prefix}_NOT_FINITE;",
        "    }",
        "}",
    ]


def _write_elapsed(program: Program, subject: Subject, width: int, elapsed: bool) -> None:
    prepared, prefix = subject.preparation, program.name.upper()
    assert prepared is not None
    typical = number(prepared.typical_gap, torch.float32)
    unit = number(1 / prepared.typical_gap, torch.float32)
    longest = number(LONGEST_GAP * prepared.typical_gap, torch.float32)
    program.fields["started"] = ("uint32_t", 1)
    feature = "gap"
    if not elapsed:
        program.helpers.add("log1p")
        ratio = number(1 / subject.model.gap, torch.float32)
        feature = f"{program.name}_log1p(gap * {ratio})"
    program.prepare += [
        f"/* In typical gaps of {typical}; the first sample has none before it. */",
        f"const float gap = state->started[0] ? elapsed * {unit} : 0.0f;",
        f"if (state->started[0] && !(elapsed > 0.0f && elapsed <= {longest})) {{",
        f"    return {prefix}_BAD_TIME;",
        "}",
        "state->started[0] = 1;",
        f"x[{width - 1}] = {feature};",
    ]


# The files


def header_text(program: Program, subject: Subject) -> str:
    """Return the text of the header."""
    name, prefix = program.name, program.name.upper()
    prepared, classes = subject.preparation, subject.classes
    stamped = prepared is not None and prepared.timestamps
    fields = "\n".join(
        f"    {kind} {field_name}[{size}];" for field_name, (kind, size) in program.fields.items()
    )
    elapsed = " float elapsed," if stamped else ""
    time_note = (
        " * elapsed: time since the last sample, in the units of the training data; ignored for\n"
        " *     the first sample.\n"
        if stamped
        else ""
    )
    labels = ""
    if classes is not None:
        labels = f"""
/* The predicted class of an answer: an index of {name}_labels. */
int {name}_label(const float *answer);
extern const char *const {name}_labels[{prefix}_OUTPUTS];
"""
    meaning = "probabilities of the classes" if classes is not None else "numbers in original units"
    return f"""/* Written by undamped {__version__}; do not edit. */
#ifndef {prefix}_H
#define {prefix}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {prefix}_INPUTS {input_count(subject)}
#define {prefix}_OUTPUTS {output_count(subject)}
#define {prefix}_STATE_BYTES {program.state_bytes}
#define {prefix}_WEIGHT_BYTES {program.constants.nbytes}

/* What {name}_step returns; after an error the state is as before. */
enum {{
    {prefix}_OK = 0,
    {prefix}_NOT_FINITE = 1, /* a value is infinite, or missing where it may not be */
    {prefix}_BAD_TIME = 2, /* elapsed is not positive, or far longer than in training */
    {prefix}_BAD_SYMBOL = 3, /* the sample is not a symbol of the training data */
    {prefix}_COUNTER_FULL = 4 /* 2^32 - 1 samples: reset before the next one */
}};

typedef struct {{
{fields or "    uint8_t unused[1];"}
}} {name}_state;

extern const char *const {name}_channels[{prefix}_INPUTS];

/* Start a new sequence. */
void {name}_init({name}_state *state);
void {name}_reset({name}_state *state);

/*
 * Process one sample.
 *
 * sample: {prefix}_INPUTS raw values in the order of {name}_channels; NaN where one is missing.
{time_note} * answer: {prefix}_OUTPUTS {meaning}.
 */
int {name}_step({name}_state *restrict state, const float *restrict sample,{elapsed}
    float *restrict answer);
{labels}
#ifdef __cplusplus
}}
#endif

#endif
"""


def input_count(subject: Subject) -> int:
    """Return the number of values of a raw sample."""
    return int(np.prod(subject.sample_shape, dtype=int)) if subject.sample_shape else 1


def output_count(subject: Subject) -> int:
    """Return the number of values of an answer."""
    if subject.preparation is not None and subject.preparation.at_times:
        prepared = subject.preparation
        return prepared.horizon * len(prepared.forecast)
    model: Any = subject.model
    return model.head.out_features if hasattr(model, "head") else model.shape.output_size


def source_text(program: Program, subject: Subject, *, libm: bool, test: str = "") -> str:
    """Return the text of the C file.

    Args:
        program: Its parts.
        subject: The model.
        libm: Whether functions of math.h are called.
        test: The text of the test of itself.
    """
    name = program.name
    prepared = subject.preparation
    stamped = prepared is not None and prepared.timestamps
    channels = prepared.raw_channels if prepared is not None else _numbers(input_count(subject))
    body = "\n".join(_indented(program.declarations + program.prepare + program.statements))
    special = ""
    if "UNDAMPED_" in body:
        program.helpers.add("bits")
        body = body.replace("UNDAMPED_", f"{name.upper()}_")
        for word, bits in (("INFINITY", 0x7F800000), ("NAN", 0x7FC00000)):
            special += f"#define {name.upper()}_{word} {name}_bits({bits})\n"
    helpers = helper_text(program.helpers, name, libm=libm)
    initial = {field: program.constants.name(start) for field, start in program.initial.items()}
    tables = "\n".join(_table(key, array) for key, array in program.constants.arrays.items())
    resets = []
    for field_name, (_, size) in program.fields.items():
        value = f"{initial[field_name]}[i]" if field_name in initial else "0"
        resets.append(f"    for (int i = 0; i < {size}; i++) {{")
        resets.append(f"        state->{field_name}[i] = {value};\n    }}")
    elapsed = " float elapsed," if stamped else ""
    names = f"const char *const {name}_channels[] = {{{', '.join(map(string, channels))}}};\n"
    return f"""/* Written by undamped {__version__}; do not edit. */
#include "{name}.h"
{"#include <math.h>" if libm else "/* No library is needed. */"}

{tables}
{names}{_labels(program, subject)}
{special}{helpers}
{"".join(program.functions)}
void {name}_reset({name}_state *state)
{{
{chr(10).join(resets) or "    (void)state;"}
}}

void {name}_init({name}_state *state)
{{
    {name}_reset(state);
}}

int {name}_step({name}_state *restrict state, const float *restrict sample,{elapsed}
    float *restrict answer)
{{
{body}
    return {name.upper()}_OK;
}}
{test}"""


def _numbers(count: int) -> list[str]:
    return [str(at) for at in range(count)]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for text in lines for line in text.split("\n")]


def _labels(program: Program, subject: Subject) -> str:
    """Return the names of the classes, and the function that selects one."""
    if subject.classes is None:
        return ""
    name, count = program.name, output_count(subject)
    labels = list(subject.classes) or _numbers(count)
    prepared = subject.preparation
    alarm = None if prepared is None else prepared.stored_alarm
    threshold, least = "", "answer[i] > answer[best]"
    start = "0"
    if alarm is not None:
        index = labels.index(alarm.positive)
        level = number(alarm.threshold, torch.float32)
        threshold = (
            f"    /* This class has a threshold of its own, for the required sensitivity. */\n"
            f"    if (answer[{index}] >= {level}) {{\n        return {index};\n    }}\n"
        )
        start = "1" if index == 0 else "0"
        least = f"i != {index} && {least}"
    return f"""const char *const {name}_labels[] = {{{", ".join(map(string, labels))}}};

int {name}_label(const float *answer)
{{
    int best = {start};
{threshold}    for (int i = 0; i < {count}; i++) {{
        if ({least}) {{
            best = i;
        }}
    }}
    return best;
}}
"""


def _table(name: str, array: Tensor) -> str:
    kind = TYPES[array.dtype]
    values = [number(value, array.dtype) for value in array.tolist()]
    rows = [", ".join(values[at : at + _ROW]) for at in range(0, len(values), _ROW)]
    return f"static const {kind} {name}[{len(values)}] = {{\n    " + ",\n    ".join(rows) + "\n};"
