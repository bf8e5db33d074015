"""The test of itself in a C file: samples with the answers of PyTorch, and a `main`."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from undamped.lab.export.c.int8 import int8_weights
from undamped.lab.export.c.integer_model import IntegerStep, integer_model
from undamped.lab.export.c.lower import literal
from undamped.lab.export.live import LiveModel
from undamped.lab.export.onnx_file import random_samples
from undamped.lab.export.subject import Subject

STEPS = 24
"""Samples of a test."""
TOLERANCE = 1e-4
"""The largest relative error with which a test passes."""


def expected_answers(
    subject: Subject,
    samples: np.ndarray,
    times: np.ndarray | None,
    *,
    int8: bool = False,
    integer: IntegerStep | None = None,
) -> np.ndarray:
    """Return the answer of PyTorch after each sample, (steps, outputs).

    Args:
        subject: The model.
        samples: (steps, channels), or (steps,) for symbols.
        times: (steps,) timestamps, for models that use them.
        int8: Whether matrices have 8 bits.
        integer: The step in integers, if that computes the answers.
    """
    rows = []
    with _variant(subject, int8, integer) as model:
        live = LiveModel(Subject(model, subject.preparation, subject.classes))
        for at, sample in enumerate(samples):
            live.push(sample, None if times is None else times[at])
            rows.append(answer_row(subject, live.outputs()[0].double().numpy()))
    return np.stack(rows)


def _variant(
    subject: Subject, int8: bool, integer: IntegerStep | None
) -> AbstractContextManager[Any]:
    if integer is not None:
        return nullcontext(integer_model(subject, integer))
    return (
        int8_weights(subject.model)
        if int8
        else nullcontext(copy.deepcopy(subject.model).cpu().eval())
    )


def answer_row(subject: Subject, outputs: np.ndarray) -> np.ndarray:
    """Return outputs of a model as probabilities, or as numbers in original units."""
    if subject.classes is not None:
        powers = np.exp(outputs - outputs.max())
        return powers / powers.sum()
    prepared = subject.preparation
    if prepared is None:
        return outputs
    mean, std = np.array(prepared.target_mean), np.array(prepared.target_std)
    if prepared.kind == "forecast":
        outputs = outputs.reshape(prepared.horizon, len(prepared.forecast), -1)
        mean, std = mean[:, None], std[:, None]
    return (outputs * std + mean).ravel()


def test_samples(subject: Subject, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
    """Return random samples (steps, …) with gaps where a model allows them, and timestamps."""
    random = np.random.default_rng(seed)
    samples, times = random_samples(subject, STEPS, 1, random)
    return samples[0], None if times is None else times[0]


def selftest_text(
    subject: Subject,
    name: str,
    *,
    int8: bool = False,
    integer: IntegerStep | None = None,
    tolerance: float = TOLERANCE,
) -> str:
    """Return the text of the test, which is compiled with -DNAME_SELFTEST only."""
    prefix = name.upper()
    samples, times = test_samples(subject)
    answers = expected_answers(subject, samples, times, int8=int8, integer=integer)
    elapsed = None if times is None else np.diff(times, prepend=times[0])
    arguments = f"state, {name}_test_samples[t]," + (
        f" {name}_test_elapsed[t]," if times is not None else ""
    )
    rows = samples.reshape(STEPS, -1)
    tables = _rows(f"{name}_test_samples", rows, f"{prefix}_TEST_STEPS", f"{prefix}_INPUTS")
    tables += _rows(f"{name}_test_answers", answers, f"{prefix}_TEST_STEPS", f"{prefix}_OUTPUTS")
    if elapsed is not None:
        tables += f"static const float {name}_test_elapsed[] = {{{_list(elapsed)}}};\n"
    return f"""
#ifdef {prefix}_SELFTEST
/* Compares answers with those of PyTorch; -D{prefix}_SELFTEST=1000000 also measures the speed. */
#include <math.h>
#include <stdio.h>
#include <time.h>

enum {{ {prefix}_TEST_STEPS = {STEPS} }};
{tables}
static void {name}_test_run({name}_state *state, double *worst)
{{
    double scale = 1e-2;
    for (int t = 0; t < {prefix}_TEST_STEPS; t++) {{
        for (int i = 0; i < {prefix}_OUTPUTS; i++) {{
            const double size = fabs((double){name}_test_answers[t][i]);
            scale = size > scale ? size : scale;
        }}
    }}
    {name}_reset(state);
    for (int t = 0; t < {prefix}_TEST_STEPS; t++) {{
        float answer[{prefix}_OUTPUTS];
        if ({name}_step({arguments} answer) != {prefix}_OK) {{
            *worst = HUGE_VAL;
            return;
        }}
        for (int i = 0; i < {prefix}_OUTPUTS; i++) {{
            const double exact = (double){name}_test_answers[t][i];
            const double error = fabs((double)answer[i] - exact) / scale;
            *worst = !(error <= *worst) ? error : *worst;
        }}
    }}
}}

int main(void)
{{
    static {name}_state memory;
    {name}_state *const state = &memory;
    double worst = 0.0;
    {name}_init(state);
    {name}_test_run(state, &worst);
    {name}_test_run(state, &worst); /* after a reset the answers are the same */
    printf("{name}: largest relative error %.1e in %d steps\\n", worst, {prefix}_TEST_STEPS);
#if {prefix}_SELFTEST > 1
    const clock_t start = clock();
    float answer[{prefix}_OUTPUTS], total = 0.0f;
    for (long n = 0; n < {prefix}_SELFTEST; n++) {{
        const int t = (int)(n % {prefix}_TEST_STEPS);
        (void){name}_step({arguments} answer);
        total += answer[0];
    }}
    const double seconds = (double)(clock() - start) / (double)CLOCKS_PER_SEC;
    printf("{name}: %.0f samples/s (sum of answers %g)\\n", {prefix}_SELFTEST / seconds,
        (double)total);
#endif
    return worst <= {tolerance:g} ? 0 : 1;
}}
#endif
"""


def _rows(name: str, rows: np.ndarray, steps: str, width: str) -> str:
    lines = ",\n".join(f"    {{{_list(row)}}}" for row in rows)
    return f"static const float {name}[{steps}][{width}] = {{\n{lines}\n}};\n"


def _list(values: np.ndarray) -> str:
    return ", ".join(
        "NAN" if value != value else literal(value, torch.float32) for value in values.tolist()
    )
