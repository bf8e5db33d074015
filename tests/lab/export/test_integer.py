"""C code in integers: fixed-point arithmetic, tables of functions, networks, scores, boards."""

import ctypes
import json
import subprocess

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lab.export.test_c import BOARDS, COMPILERS, STRICT, VARIANTS, Device, amalgam, build, sanitized
from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped.lab import cli
from undamped.lab.benchmarks import devices
from undamped.lab.export import Subject
from undamped.lab.export.c import emulator
from undamped.lab.export.c.cost import TARGETS, estimate, instructions
from undamped.lab.export.c.files import c_files, export_c
from undamped.lab.export.c.functions import helper_text
from undamped.lab.export.c.integer import fixed_tensor
from undamped.lab.export.c.integer_model import integer_model, integer_step
from undamped.lab.export.c.selftest import expected_answers
from undamped.lab.export.onnx_file import random_samples

pytestmark = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
LIMIT = 2**31 - 1
NAMES = ("unicornn", "lstm", "linoss", "embedding", "pixels", "masked", "stamped", "forecast")
SUBJECTS = {name: VARIANTS[name] for name in NAMES}
SUBJECTS |= {name: Subject(build(name), classes=()) for name in ("gru", "minlstm")}


def calibration(subject, steps=40):
    """Random series as a task returns them: prepared, with the mask and the times."""
    random = torch.Generator().manual_seed(5)
    size, lengths = subject.model.input_size, torch.randint(20, steps + 1, (16,), generator=random)
    if subject.input_kind == "symbols":
        return Batch(torch.randint(size, (steps, 16), generator=random), lengths=lengths)
    x = torch.randn(steps, 16, size, generator=random)
    if subject.input_kind == "pixels":
        x = (60 * x.abs()).clamp(0, 255).to(torch.uint8)
    times = torch.rand(steps, 16, generator=random).double().cumsum(0)
    return Batch(
        x,
        lengths=lengths,
        times=times if "times" in subject.model.reads else None,
        observed=x < 1 if "observed" in subject.model.reads else None,
    )


@pytest.fixture(scope="module")
def steps():
    return {
        name: integer_step(subject, [calibration(subject)]) for name, subject in SUBJECTS.items()
    }


@pytest.fixture(scope="module")
def library(steps, tmp_path_factory):
    folder, programs = tmp_path_factory.mktemp("c"), {}
    for name, subject in SUBJECTS.items():
        files = c_files(subject, name, libm=False, int8=True, integer=steps[name])
        files.write(folder)
        programs[name] = files.program
    target, sources = folder / "all.so", [str(path) for path in folder.glob("*.c")]
    command = [
        COMPILERS[-1],
        *STRICT,
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(target),
        *sources,
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr[:4000]
    return ctypes.CDLL(str(target)), programs


def exact(name, x, y, *shifts):
    """The operations with integers of any size, rounded half up and saturated."""
    if name == "div":
        total = abs(x << shifts[0]) // abs(y) if y else LIMIT
        return max(-LIMIT, min(LIMIT, total if (x < 0) == (y < 0 and y != 0) else -total))
    s = shifts[-1]
    if name == "mul":
        total = x * y
    elif name in ("add", "sub"):
        total = (x << shifts[0]) + (1 if name == "add" else -1) * (y << shifts[1])
    else:
        total, s = (x, s) if name == "right" else (x << s, 0)
    return max(-LIMIT, min(LIMIT, (total + (1 << s >> 1)) >> s))


CALLS = {
    "mul": [(0,), (7,), (31,), (62,)],
    "add": [(0, 0, 0), (30, 0, 12), (0, 9, 30), (3, 0, 1)],
    "sub": [(0, 0, 0), (30, 0, 12), (0, 9, 30)],
    "div": [(0,), (13,), (31,)],
    "right": [(1,), (12,), (31,)],
    "left": [(1,), (12,), (31,)],
}


def test_arithmetic_is_that_of_unbounded_integers_saturated(tmp_path):
    text, names = helper_text([f"fixed_{name}" for name in CALLS], "own", libm=False), []
    for name, every in CALLS.items():
        for at, shifts in enumerate(every):
            one = "x[i]" if name in ("right", "left") else "x[i], y[i]"
            call = f"own_fixed_{name}({one}, {', '.join(map(str, shifts))})"
            names.append((name, shifts, f"run_{name}_{at}"))
            text += f"""void run_{name}_{at}(const int32_t *x, const int32_t *y, int32_t *z)
{{ for (int i = 0; i < 400; i++) {{ (void)y; z[i] = {call}; }} }}\n"""
    (tmp_path / "own.c").write_text(f"#include <stdint.h>\n{text}")
    shared = str(tmp_path / "own.so")
    flags = [*STRICT, "-O2", "-shared", "-fPIC", "-o", shared, str(tmp_path / "own.c")]
    subprocess.run([COMPILERS[0], *flags], check=True)
    random = np.random.default_rng(0)
    x, y = (random.integers(-LIMIT, LIMIT, 400) >> random.integers(0, 31, 400) for _ in range(2))
    x[:4], y[:4] = [LIMIT, -LIMIT, LIMIT, 0], [LIMIT, LIMIT, 0, -LIMIT]
    values = [part.astype(np.int32) for part in (x, y)]
    for name, shifts, function in names:
        z = np.empty(400, np.int32)
        pointers = [part.ctypes.data_as(ctypes.c_void_p) for part in (*values, z)]
        getattr(ctypes.CDLL(shared), function)(*pointers)
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        assert z.tolist() == [exact(name, *pair, *shifts) for pair in pairs], (name, shifts)


def test_numbers_become_integers():
    values = torch.tensor([0.5, -0.25, 1e30, -1e30, float("nan")])
    assert fixed_tensor(values, 30).tolist() == [2**29, -(2**28), LIMIT, -LIMIT, 0]


@pytest.mark.parametrize("name", SUBJECTS)
def test_answers_are_those_of_the_same_integers_and_near_pytorch(library, steps, name):
    subject = SUBJECTS[name]
    samples, times = random_samples(subject, 30, 1, np.random.default_rng(2))
    samples, times = samples[0], None if times is None else times[0]
    device = Device(library[0], library[1][name], subject)
    for _ in range(2):  # the second time after a reset
        answers = device.run(samples, times)
        simulated = expected_answers(subject, samples, times, integer=steps[name])
        assert np.abs(answers - simulated).max() <= 2e-6 * max(1, np.abs(simulated).max())
    single = expected_answers(subject, samples, times)
    prepared = subject.preparation
    stds = [1.0] if prepared is None else np.ravel(prepared.target_std).tolist()
    scale = max(1.0, *stds, 1.0)
    # Most of this is due to weights of 8 bits.
    assert np.abs(answers - single).max() < 0.03 * scale


@pytest.mark.parametrize("name", ["unicornn", "lstm", "minlstm"])
def test_values_beyond_the_calibration_saturate(library, name):
    device = Device(library[0], library[1][name], SUBJECTS[name])
    huge = [[1e30, -1e30, 3e38]] * 20 + [[1e-42, -0.0, 1e-30]] * 20
    for sample in huge:
        assert device.step(sample) == 0
        answer = np.array(device.answer)
        assert np.isfinite(answer).all() and abs(answer.sum() - 1) < 1e-5
    assert device.step([np.inf, 0.0, 0.0]) == 1


@pytest.mark.process
@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_are_silent(tmp_path, steps, compiler):
    lines = []
    for name in ("unicornn", "lstm", "masked", "minlstm"):
        source = amalgam({name: SUBJECTS[name]}, tmp_path, integer=steps[name], int8=True)
        lines.append(source.read_text().partition("int main(void)")[0])
    calls = " | ".join(f"{name}_main()" for name in ("unicornn", "lstm", "masked", "minlstm"))
    source.write_text("".join([*lines, f"int main(void) {{ return {calls}; }}\n"]))
    done = sanitized(source, compiler)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def test_a_batch_is_computed_as_a_stream_is(steps):
    subject = SUBJECTS["gru"]
    batch = calibration(subject)
    model = integer_model(subject, steps["gru"])
    whole, _ = model.run(batch)
    for at in (0, 7):
        row = batch.inputs[: batch.lengths[at], at].numpy()
        last = expected_answers(subject, row, None, integer=steps["gru"])[-1]
        assert np.allclose(torch.softmax(whole[at].double(), -1).numpy(), last, atol=1e-6)


def test_what_has_no_integer_form_is_refused_by_name():
    batch = Batch(torch.randn(20, 4, 3))
    for subject, message in (
        (VARIANTS["bank"], "OscillatorBank has no integer form"),
        (VARIANTS["mean_readout"], "readout=mean"),
        (VARIANTS["eurnn"], "operator sqrt, which varies too much"),
        (Subject(build("exprnn")), "operator sign,"),
        (VARIANTS["cfc"], "TimestampedModel has no integer form"),
    ):
        with pytest.raises(OptionError, match=message):
            integer_step(subject, [batch])
    with pytest.raises(OptionError, match="not finite on the validation data"):
        integer_step(VARIANTS["lstm"], [Batch(torch.full((4, 2, 3), torch.inf))])


def test_costs_and_bytes(steps, tmp_path):
    files = devices.example_files("unicornn", "integer")
    count = instructions(files.program, TARGETS["cortex-m3"])
    single = instructions(
        devices.example_files("unicornn", "float32").program, TARGETS["cortex-m3"]
    )
    assert count < single / 8
    assert estimate(files.program, "cortex-m0+").flash < 12 * 1024
    result = export_c(SUBJECTS["gru"], tmp_path, "m", int8=True, integer=steps["gru"])
    assert result.error < 1e-5
    step = result.paths[1].read_text().partition("int m_step(")[2].partition("#ifdef M_SELFTEST")[0]
    middle = step.partition("fixed_x[i] = ")[2].partition("answer[i] = (float)")[0]
    assert "float" not in middle.partition("}")[2].replace("float x[", "")


@BOARDS
@pytest.mark.process
def test_a_core_without_floating_point_needs_far_fewer_instructions():
    results = [
        emulator.emulate(devices.example_files("unicornn", kind), "cortex-m3")
        for kind in ("float32", "integer")
    ]
    assert all(result.error < 1e-5 for result in results)
    assert results[1].instructions < results[0].instructions / 8


def test_on_the_command_line(tmp_path):
    words = ["digits", "gru", "task.length=10", "model.hidden_size=6", "train.steps=2"]
    runner = CliRunner()
    assert runner.invoke(cli.app, ["train", *words, "--out", str(tmp_path)]).exit_code == 0
    export = ["export", str(tmp_path / "digits-gru-1"), "--c", "--out", str(tmp_path / "new")]
    refused = runner.invoke(cli.app, [*export, "--integer"])
    assert "--integer applies to --int8 only" in str(refused.exception)
    result = runner.invoke(cli.app, [*export, "--int8", "--integer", "--lose", "100", "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["int8"]["integer"] and printed["difference"] < 1e-5
    text = runner.invoke(cli.app, [*export, "--int8", "--integer", "--lose", "100"]).output
    assert "in integers" in text.replace("\n", " ")
    cost = ["cost", str(tmp_path / "digits-gru-1"), "--json"]
    assert "--integer applies" in str(runner.invoke(cli.app, [*cost, "--integer"]).exception)
    costs = [
        json.loads(runner.invoke(cli.app, [*cost, *more]).stdout)
        for more in ([], ["--int8", "--integer"])
    ]
    assert costs[1][0]["cycles"] < costs[0][0]["cycles"] / 5
