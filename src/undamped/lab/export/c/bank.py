"""The C code of a bank of oscillators: running statistics, and readouts of them.

The sums, extremes and counts of a bank are updated in place, which a graph of tensors would copy;
each oscillator is driven by a few signals, which a matrix product would multiply with zeros.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.dynamics import Oscillators
from undamped.lab.baselines.bank.early import FULL
from undamped.lab.baselines.bank.kernels.pools import rotate
from undamped.lab.baselines.bank.oscillator_bank import LIMIT, OscillatorBank
from undamped.lab.export.c.lower import Constants, literal, quantise
from undamped.lab.export.c.program import Program, write_preparation
from undamped.lab.export.subject import Subject

_COUNTS = ("above", "streak", "longest")
_LOCATIONS = ("peak_location", "trough_location")


def bank_program(subject: Subject, name: str, *, int8: bool = False) -> Program:
    """Return the program of a bank."""
    bank: OscillatorBank = subject.model
    dynamics = bank.dynamics
    if not isinstance(dynamics, Oscillators):
        raise OptionError(
            "A bank with the dynamics of a recurrent network has no C code. Train it with "
            "model.dynamics=oscillators."
        )
    program = Program(name, Constants(name, int8))
    count, (levels, _) = dynamics.count, dynamics.thresholds.shape
    prepared = subject.preparation
    masked = prepared is not None and prepared.missing == "mask"
    gaps = prepared is not None and prepared.timestamps
    channels = dynamics.channels
    width = channels * (1 + masked) + gaps
    write_preparation(program, subject, width, elapsed=True, allow_missing=prepared is None)
    parts = ("real", "imaginary", "peak", "trough")
    for part in parts if bank.shape.answer == "class" else (*parts, "total", "rest", "current"):
        program.fields[part] = ("float", count)
    for part in _COUNTS:
        program.fields[part] = ("uint32_t", levels * count)
    if dynamics.locations:
        program.fields |= dict.fromkeys(_LOCATIONS, ("uint32_t", count))
    program.fields |= {"before": ("float", channels), "seen": ("uint8_t", channels)}
    program.fields["samples"] = ("uint32_t", 1)
    program.prepare.insert(0, _full_counter(name))
    program.declarations += [f"float x[{width}];", f"float signals[{2 * channels}];"]
    program.declarations.append(f"float scores[{bank.shape.output_size}];")
    program.work["float"] = width + 2 * channels + 3 * bank.shape.output_size
    program.statements += [
        _signals(program.constants, dynamics, masked),
        _advance(program, dynamics, gaps),
        "state->samples[0] += 1u;",
        _mixture(program, bank, subject),
    ]
    program.functions.append(_reader(program, bank))
    most = int((dynamics.drivers != 0).sum(1).max())
    features = len(bank.centre)
    program.products = count * (6 + most) + 2 * features * (1 + bank.shape.output_size)
    program.operations = {"where": 8 * levels * count + 4 * features, "div": 2 * features}
    if gaps:
        program.operations |= {"exp": count, "sin": count, "cos": count}
    return program


def _full_counter(name: str) -> str:
    return f"if (state->samples[0] == UINT32_MAX) {{\n    return {name.upper()}_COUNTER_FULL;\n}}"


def _signals(constants: Constants, dynamics: Oscillators, masked: bool) -> str:
    channels = dynamics.channels
    mean, std = constants.name(dynamics.centre.float()), constants.name(dynamics.scale.float())
    observed = f"x[{channels} + i] > 0.0f" if masked else "x[i] == x[i]"
    return f"""for (int i = 0; i < {channels}; i++) {{
    signals[i] = 0.0f;
    signals[{channels} + i] = 0.0f;
    if ({observed}) {{
        signals[i] = (x[i] - {mean}[i]) / {std}[i];
        if (state->seen[i]) {{
            signals[{channels} + i] =
                ((x[i] - state->before[i]) - {mean}[{channels} + i]) / {std}[{channels} + i];
        }}
        state->before[i] = x[i];
        state->seen[i] = 1;
    }}
}}"""


def _advance(program: Program, dynamics: Oscillators, gaps: bool) -> str:
    constants, name = program.constants, program.name
    drivers, count = dynamics.drivers, dynamics.count
    most = int((drivers != 0).sum(1).max())
    index = (drivers == 0).byte().argsort(dim=1, stable=True)[:, :most]
    weight = constants.name(drivers.gather(1, index).T.float())
    table = constants.name(index.T.to(torch.uint8 if drivers.shape[1] < 256 else torch.int32))
    terms = " + ".join(
        f"{weight}[{at * count} + k] * signals[{table}[{at * count} + k]]" for at in range(most)
    )
    rates = dynamics.rates().to(torch.float32)
    cosine, sine = (constants.name(part) for part in (rates.phase.cos(), rates.phase.sin()))
    if gaps:
        program.helpers |= {"exp", "cos", "sin"}
        damping, frequency = (constants.name(part) for part in rates[:2])
        step = f"""const float size = {name}_exp(-{damping}[k] * x_gap);
    const float c = size * {name}_cos({frequency}[k] * x_gap);
    const float s = size * {name}_sin({frequency}[k] * x_gap);"""
    else:
        unit, zero = torch.ones(()), torch.zeros(())
        parts = rotate(unit, zero, unit, rates.damping, rates.frequency)
        real, imaginary = (constants.name(part) for part in parts)
        step = f"const float c = {real}[k], s = {imaginary}[k];"
    levels = """
    /* A compensated sum, since a float cannot add small numbers to that of many samples. */
    const float addend = y - state->rest[k], larger = state->total[k] + addend;
    state->rest[k] = (larger - state->total[k]) - addend;
    state->total[k] = larger;
    state->current[k] = y;"""
    locations = "".join(
        f"\n    if (!state->samples[0] || y {sign} state->{part}[k]) {{"
        f"\n        state->{part}_location[k] = state->samples[0] + 1u;\n    }}"
        for part, sign in (("peak", ">"), ("trough", "<"))
    )
    return f"""{_gap_line(gaps, program)}for (int k = 0; k < {count}; k++) {{
    {step}
    const float a = state->real[k], b = state->imaginary[k];
    const float real = c * a - s * b + ({terms});
    const float imaginary = s * a + c * b;
    const float y = {cosine}[k] * real - {sine}[k] * imaginary;
    state->real[k] = real;
    state->imaginary[k] = imaginary;{levels if "total" in program.fields else ""}\
{locations if dynamics.locations else ""}
    state->peak[k] = !state->samples[0] || y > state->peak[k] ? y : state->peak[k];
    state->trough[k] = !state->samples[0] || y < state->trough[k] ? y : state->trough[k];
{_indent(_thresholds(constants, dynamics))}
}}"""


def _gap_line(gaps: bool, program: Program) -> str:
    if not gaps:
        return ""
    width = next(line for line in program.declarations if line.startswith("float x["))
    return f"const float x_gap = x[{int(width[8:-2]) - 1}];\n"


def _thresholds(constants: Constants, dynamics: Oscillators) -> str:
    levels, count = dynamics.thresholds.shape
    table = constants.name(dynamics.thresholds.float())
    return f"""for (int j = 0; j < {levels}; j++) {{
    const int at = {count} * j + k;
    const uint32_t over = y > {table}[at] ? 1u : 0u;
    const uint32_t streak = (state->streak[at] + 1u) * over;
    state->above[at] += over;
    state->streak[at] = streak;
    state->longest[at] = streak > state->longest[at] ? streak : state->longest[at];
}}"""


def _reader(program: Program, bank: OscillatorBank) -> str:
    """Return a function that applies a readout to the features of the state."""
    name, count, outputs = program.name, bank.dynamics.count, bank.shape.output_size
    levels = len(bank.dynamics.thresholds)
    kind = "int8_t" if program.constants.int8 else "float"
    groups = [("total", 1, " / samples"), ("current", 1, "")] if "total" in program.fields else []
    groups += [("peak", 1, ""), ("trough", 1, "")]
    groups += [(part, levels, " / samples") for part in ("above", "longest")]
    if bank.dynamics.locations:
        groups += [(part, 1, " / samples") for part in _LOCATIONS]
    loops, offset = [], 0
    for part, rows, divisor in groups:
        size = rows * count
        loops.append(f"""    for (int i = 0; i < {size}; i++) {{
        const int f = {offset} + i;
        float z = ((float)state->{part}[i]{divisor} - centre[f]) * scale[f];
        z = z > {LIMIT}f ? {LIMIT}f : (z < -{LIMIT}f ? -{LIMIT}f : z);
        for (int o = 0; o < {outputs}; o++) {{
            sums[o] += (float)weight[f * {outputs} + o] * z;
        }}
    }}""")
        offset += size
    total = "sums[o] * row_scale[o]" if program.constants.int8 else "sums[o]"
    extra = ", const float *row_scale" if program.constants.int8 else ""
    body = "\n".join(loops)
    return f"""/* Adds a fraction of the outputs of a readout to the scores. */
static void {name}_read(const {name}_state *state, const float *centre, const float *scale,
    const {kind} *weight, const float *bias{extra}, float fraction, float *scores)
{{
    const float samples = (float)state->samples[0];
    float sums[{outputs}];
    for (int o = 0; o < {outputs}; o++) {{
        sums[o] = 0.0f;
    }}
{body}
    for (int o = 0; o < {outputs}; o++) {{
        scores[o] += fraction * ({total} + bias[o]);
    }}
}}
"""


def _mixture(program: Program, bank: OscillatorBank, subject: Subject) -> str:
    """Return the statements that apply one or two readouts, by the number of samples."""
    constants, early, outputs = program.constants, bank.early, bank.shape.output_size

    def read(readout: int, fraction: str) -> str:
        parts: tuple[Any, ...] = (bank.centre, bank.scale, bank.readout.weight, bank.readout.bias)
        if readout != FULL:
            parts = tuple(
                part[readout] for part in (early.centre, early.scale, early.weight, early.bias)
            )
        centre, scale, weight, bias = (part.detach().float() for part in parts)
        tables: list[Tensor] = [centre, 1 / scale, weight.T, bias]
        if constants.int8:
            weight, rows = quantise(weight)
            tables[2:] = [weight.T, bias, rows]
        arguments = ", ".join(constants.name(table) for table in tables)
        return f"{program.name}_read(state, {arguments}, {fraction}, scores);"

    knots = [(stop, at) for at, stop in enumerate(early.counts.tolist()) if stop > 0]
    full = ["{", f"    {read(FULL, '1.0f')}", "}"]
    lines = [f"for (int o = 0; o < {outputs}; o++) {{", "    scores[o] = 0.0f;", "}"]
    if knots:
        prior = constants.name(early.prior.float())
        lines += [
            f"if (state->samples[0] < {knots[0][0]}u) {{",
            f"    for (int o = 0; o < {outputs}; o++) {{",
            f"        scores[o] = {prior}[o];",
            "    }",
        ]
        for (low, first), (high, second) in pairwise(knots):
            second = FULL if high == knots[-1][0] else second
            width = literal(1 / (high - low), torch.float32)
            lines += [
                f"}} else if (state->samples[0] < {high}u) {{",
                f"    const float part = (float)(state->samples[0] - {low}u) * {width};",
                f"    {read(first, '1.0f - part')}",
                "    if (part > 0.0f) {",
                f"        {read(second, 'part')}",
                "    }",
            ]
        lines += ["} else " + full[0], *full[1:]]
    else:
        lines += full
    return "\n".join(lines + _answer(program, subject, outputs))


def _answer(program: Program, subject: Subject, outputs: int) -> list[str]:
    prepared = subject.preparation
    if subject.classes is not None:
        program.helpers.add("exp")
        return f"""float top = scores[0], sum = 0.0f;
for (int o = 1; o < {outputs}; o++) {{
    top = scores[o] > top ? scores[o] : top;
}}
for (int o = 0; o < {outputs}; o++) {{
    answer[o] = {program.name}_exp(scores[o] - top);
    sum += answer[o];
}}
for (int o = 0; o < {outputs}; o++) {{
    answer[o] /= sum;
}}""".split("\n")
    mean, std = torch.zeros(outputs), torch.ones(outputs)
    if prepared is not None:
        repeats = outputs // len(prepared.target_mean)
        mean = torch.tensor(prepared.target_mean).repeat(repeats)
        std = torch.tensor(prepared.target_std).repeat(repeats)
    names = program.constants.name(std), program.constants.name(mean)
    return [
        f"for (int o = 0; o < {outputs}; o++) {{",
        f"    answer[o] = scores[o] * {names[0]}[o] + {names[1]}[o];",
        "}",
    ]


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
