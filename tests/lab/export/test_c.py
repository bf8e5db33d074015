"""C code: every network, every readout, the bank; compiled, sanitized, compared with PyTorch."""

import copy
import ctypes
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError, RunError, UnknownNameError
from undamped._base.registry import models
from undamped.lab import cli
from undamped.lab.baselines.bank.location_bank import LocationBank
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.benchmarks import devices
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.export import Subject
from undamped.lab.export.c import emulator
from undamped.lab.export.c.cost import TARGETS, device_cost, estimate, instructions, refuse_large
from undamped.lab.export.c.files import c_files, export_c, program_of
from undamped.lab.export.c.functions import ERRORS, helper_text
from undamped.lab.export.c.int8 import int8_weights
from undamped.lab.export.c.lower import quantise
from undamped.lab.export.c.program import identifier, output_count
from undamped.lab.export.c.selftest import answer_row, expected_answers
from undamped.lab.export.live import LiveModel
from undamped.lab.export.model import sequence_model, step_model
from undamped.lab.export.onnx_file import random_samples
from undamped.lab.report.runs import report_run
from undamped.lab.training.portfolio.closed_form_candidates import CANDIDATES, FORECASTERS
from undamped.lab.training.portfolio.ensembles import ENSEMBLE
from undamped.models.irregular.model import TimestampedModel
from undamped.models.sequence_model import SequenceModel
from undamped.nn.recurrent import Recurrent

STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
EXPORTED = [name for name in NETWORKS if not models[name].cell_class.memory_plan.state_grows]
IRREGULAR = ("cfc", "decay-rnn", "modes-rnn", "ode-rnn")


def build(name="gru", **options):
    torch.manual_seed(3)
    chosen = {"input_size": 3, "output_size": 4, "hidden_size": 6, "num_layers": 2, **options}
    return SequenceModel(name, **chosen).eval()


def prepared(**changes):
    values = {
        "kind": "classification",
        "raw_channels": ["a", "unused", "b"],
        "channels": ["a", "b"],
        "mean": [1000.0, -0.5],
        "std": [0.1, 20.0],
        "classes": None
        if changes.get("kind", "").endswith(("gression", "forecast"))
        else [*"wxyz"],
    }
    return Preparation(**{**values, **changes})


def read_by(name, preparation, **options):
    """A network for a preparation."""
    model = build(
        name,
        input_size=preparation.input_size,
        output_size=preparation.output_size,
        readout=options.pop("readout", preparation.readout),
        reads=(*preparation.needs, *(["target_times"] if preparation.at_times else [])),
        **options,
    )
    classes = None if preparation.classes is None else tuple(preparation.classes)
    return Subject(model, preparation, classes)


def timestamped(name, preparation, **options):
    torch.manual_seed(3)
    model = TimestampedModel(
        name, 2, 4, hidden_size=6, missing=preparation.missing == "mask", **options
    )
    return Subject(model.eval(), preparation, tuple("wxyz"))


def fitted_bank(
    answer="class", channels=3, preparation=None, times=False, bank_class=OscillatorBank
):
    torch.manual_seed(0)
    shape = TaskShape(
        channels,
        2,
        answer=answer,
        needs=frozenset({"times"} if times else ()),
    )
    bank = bank_class(shape, oscillators=20)
    label = torch.randint(2, (40,))
    wave = torch.arange(64.0).view(-1, 1, 1) * (0.2 + 0.2 * label.view(1, -1, 1))
    x = wave.sin() + 0.5 * torch.randn(64, 40, channels)
    target = label if answer == "class" else torch.stack([label, -label], 1).float()
    steps = torch.rand(64, 40).double().cumsum(0) if times else None
    for fit in (bank.fit_closed_form, bank.refit):
        fit([Batch(x, target, times=steps)])
    return Subject(bank, preparation, () if answer == "class" and not preparation else None)


def compiled(subjects, folder, compiler=COMPILERS[0] if COMPILERS else "", **options):
    """All models in one shared library, by one call of the compiler."""
    programs = {}
    for name, subject in subjects.items():
        files = c_files(subject, name, **options)
        files.write(folder)
        programs[name] = files.program
    target = folder / "all.so"
    sources = [str(folder / f"{program.name}.c") for program in programs.values()]
    command = [compiler, *STRICT, "-O1", "-shared", "-fPIC", "-o", str(target), *sources, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr[:4000]
    return ctypes.CDLL(str(target)), programs


class Device:
    """A model in a library."""

    def __init__(self, library, program, subject):
        self.step_function = getattr(library, f"{program.name}_step")
        self.reset_function = getattr(library, f"{program.name}_reset")
        self.label_function = getattr(library, f"{program.name}_label", None)
        self.state = (ctypes.c_double * (program.state_bytes // 8 + 1))()
        self.answer = (ctypes.c_float * output_count(subject))()
        getattr(library, f"{program.name}_init")(self.state)

    def step(self, sample, elapsed=None):
        row = np.ascontiguousarray(np.atleast_1d(sample), dtype=np.float32)
        times = () if elapsed is None else (ctypes.c_float(elapsed),)
        pointer = row.ctypes.data_as(ctypes.c_void_p)
        return self.step_function(self.state, pointer, *times, self.answer)

    def run(self, samples, times=None):
        self.reset_function(self.state)
        rows = []
        gaps = None if times is None else np.diff(times, prepend=times[0])
        for at, sample in enumerate(samples):
            assert self.step(sample, None if gaps is None else gaps[at]) == 0
            rows.append(np.array(self.answer))
        return np.stack(rows)


def check(device, subject, steps):
    """Equal to PyTorch's stream, or to eight times its own rounding where that is larger."""
    samples, times = random_samples(subject, steps, 1, np.random.default_rng(1))
    samples, times = samples[0], None if times is None else times[0]
    wide = Subject(copy.deepcopy(subject.model).double(), subject.preparation, subject.classes)
    expected, exact = (expected_answers(kind, samples, times) for kind in (subject, wide))
    for _ in range(2):  # the second time after a reset
        assert_close(device.run(samples, times), expected, exact)


def assert_close(found, expected, exact):
    scale = max(1e-2, np.abs(expected).max())
    rounding = np.abs(expected - exact).max() / scale
    assert np.abs(found - expected).max() / scale <= max(1e-5, 8 * rounding)


VARIANTS = {
    **{
        name: Subject(build(name), classes=())
        for name in ("unicornn", "lstm", "linoss", "rellstm", "s4d", "lmu")
    },
    "eurnn": Subject(build("eurnn", readout="every"), classes=()),
    "mean_readout": Subject(build("unicornn", readout="mean")),
    "one_hot": Subject(build("gru", input_kind="symbols", input_size=5), classes=()),
    "embedding": Subject(build("gru", input_kind="symbols", embedding_size=2), classes=()),
    "pixels": Subject(build("lstm", input_kind="pixels"), classes=()),
    "block": Subject(build("linoss", block="layer-norm", method="imex"), classes=()),
    "scaled": read_by("unicornn", prepared()),
    "masked": read_by("gru", prepared(missing="mask")),
    "stamped": read_by("unicornn", prepared(missing="mask", timestamps=True, typical_gap=0.5)),
    "number": read_by("lstm", prepared(kind="regression", target_mean=[500.0], target_std=[3.0])),
    "forecast": read_by(
        "unicornn",
        prepared(
            kind="forecast",
            horizon=2,
            forecast=["b", "a"],
            target_mean=[-0.5, 1000.0],
            target_std=[20.0, 0.1],
            quantiles=[0.1, 0.5, 0.9],
        ),
    ),
    "forecast_at_times": read_by(
        "lstm",
        prepared(
            kind="forecast",
            horizon=3,
            forecast=["b"],
            target_mean=[-0.5],
            target_std=[20.0],
            timestamps=True,
            typical_gap=0.5,
        ),
    ),
    "bank": fitted_bank(),
    "bank_numbers": fitted_bank("number"),
    "bank_masked": fitted_bank(
        channels=2,
        preparation=prepared(missing="mask", classes=["no", "yes"]),
        bank_class=LocationBank,
    ),
    "bank_stamped": fitted_bank(
        channels=2, preparation=prepared(timestamps=True, classes=["no", "yes"]), times=True
    ),
    **{
        name: timestamped(name, prepared(missing="mask", timestamps=True, typical_gap=0.5))
        for name in IRREGULAR
    },
}
VARIANTS = {
    name: subject
    if subject.preparation is None or subject.preparation.classes is None
    else Subject(subject.model, subject.preparation, tuple(subject.preparation.classes))
    for name, subject in VARIANTS.items()
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(VARIANTS, tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize("name", VARIANTS)
def test_answers_are_those_of_pytorch(library, name):
    check(Device(library[0], library[1][name], VARIANTS[name]), VARIANTS[name], 100)


def amalgam(subjects, folder, **options):
    """One C file that runs the test of every model."""
    lines, names = [], []
    for name, subject in subjects.items():
        files = c_files(subject, name, **options)
        files.write(folder)
        names.append(files.program.name)
        lines += [
            f"#define {names[-1].upper()}_SELFTEST 1",
            f"#define main {names[-1]}_main",
            f'#include "{names[-1]}.c"',
            "#undef main",
        ]
    calls = " | ".join(f"{name}_main()" for name in names)
    lines.append(f"int main(void) {{ return {calls}; }}")
    source = folder / "amalgam.c"
    source.write_text("\n".join([*lines, ""]))
    return source


def sanitized(source, compiler):
    target = source.with_suffix("")
    flags = [*STRICT, "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [compiler, *flags, "-o", str(target), str(source), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "libclang_rt" in done.stderr:
        pytest.skip("clang has no sanitizers here (package libclang-rt-dev)")
    assert not done.returncode, done.stderr[:4000]
    return subprocess.run([str(target)], capture_output=True, text=True)


DIFFERENT = ("lstm", "rellstm", "mean_readout", "stamped", "forecast", "bank_stamped")


@pytest.mark.process
@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_are_silent_and_files_check_themselves(tmp_path, compiler):
    source = amalgam({name: VARIANTS[name] for name in DIFFERENT}, tmp_path, libm=False)
    done = sanitized(source, compiler)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert done.stdout.count("largest relative error") == len(DIFFERENT)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_variant_is_clean(tmp_path, compiler):
    done = sanitized(amalgam(VARIANTS, tmp_path), compiler)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_network_is_clean(tmp_path, compiler):
    subjects = {name: Subject(build(name), classes=()) for name in EXPORTED}
    done = sanitized(amalgam(subjects, tmp_path, libm=False), compiler)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    subjects = {name: Subject(build(name, readout="every"), classes=()) for name in EXPORTED}
    return subjects, *compiled(subjects, tmp_path_factory.mktemp("registry"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_every_network_over_ten_thousand_steps(registry, name):
    subjects, shared, programs = registry
    subject = subjects[name]
    # The state of this one grows, and differences of rounding with it, in PyTorch as in C.
    steps = 1_000 if name == "antisymmetric" else 10_000
    samples = np.random.default_rng(1).standard_normal((steps, 3)).astype(np.float32)
    x = torch.from_numpy(samples).unsqueeze(1)
    with torch.no_grad():
        outputs = subject.model(Batch(x)), copy.deepcopy(subject.model).double()(Batch(x.double()))
    expected, exact = (torch.softmax(rows[:, 0].double(), -1).numpy() for rows in outputs)
    assert_close(Device(shared, programs[name], subject).run(samples), expected, exact)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bank", "bank_numbers", "bank_stamped", "masked", "stamped"])
def test_ten_thousand_steps_with_gaps(library, name):
    check(Device(library[0], library[1][name], VARIANTS[name]), VARIANTS[name], 10_000)


def test_a_count_of_steps_does_not_grow():
    """Float32 cannot count further than 2^24 steps."""
    network = build("nesterov-rnn", restart=3).network
    whole = network(torch.randn(7, 1, 3))[1][-1]
    state = None
    for _ in range(7):
        _, state = network.step(torch.randn(1, 3), state)
    assert set(state[-1].flatten().tolist()) == set(whole.flatten().tolist()) == {1.0}


def test_weights_that_are_not_finite_are_refused():
    subject = Subject(build("rnn"), classes=())
    subject.model.head.bias.data[0] = torch.nan
    for export in (lambda: c_files(subject, "m"), lambda: sequence_model(subject)):
        with pytest.raises(OptionError, match="not finite"):
            export()


EXPORTED_CHOICES = {"bank", "location-bank", "guess"}


@pytest.mark.parametrize("name", sorted({*CANDIDATES, *FORECASTERS, ENSEMBLE} - EXPORTED_CHOICES))
def test_other_choices_of_auto_are_refused_by_name(name):
    shape = getattr(models[name], "example_shape", lambda: TaskShape(3, 2))()
    subject = Subject(models.build(name, shape=shape))
    for export in (lambda: c_files(subject, "m"), lambda: sequence_model(subject)):
        with pytest.raises(OptionError, match=rf"{type(subject.model).__name__} reads whole.*bank"):
            export()


@pytest.mark.parametrize("name", sorted({*NETWORKS} - {*EXPORTED}))
def test_states_that_grow_are_refused(name):
    with pytest.raises(OptionError, match="grows with every sample"):
        c_files(Subject(build(name)), name)


def test_what_cannot_stream_is_refused_by_name():
    with pytest.raises(OptionError, match="bidirectional"):
        c_files(Subject(build("lstm", bidirectional=True)), "m")
    rocket = models.build("minirocket", shape=TaskShape(3, 2))
    with pytest.raises(OptionError, match=r"cannot follow a stream.*'bank'"):
        c_files(Subject(rocket, classes=()), "m")
    network_bank = OscillatorBank(TaskShape(3, 2), oscillators=8, dynamics="linoss")
    with pytest.raises(OptionError, match="dynamics=oscillators"):
        c_files(Subject(network_bank, classes=()), "m")
    windows = read_by("rnn", prepared(window=8, each_window=True))
    with pytest.raises(OptionError, match="answers windows of 8 steps"):
        program_of(windows, "m")
    class_ = models["gru-ode-bayes"]
    with pytest.raises(OptionError, match=r"Use .undamped stream"):
        c_files(Subject(class_(class_.example_shape())), "m")
    adaptive = timestamped("ode-rnn", prepared(timestamps=True), method="dopri5", tolerance=1e-3)
    with pytest.raises(OptionError, match="adaptive"):
        c_files(adaptive, "m")


def test_bad_samples_change_nothing(library):
    def outcome(name, *bad):
        device = Device(library[0], library[1][name], VARIANTS[name])
        good = ([1.0] * 3, 1.0) if len(bad) > 1 else ([1.0] * 3,)
        device.step(*good)
        before = bytes(device.state)
        code = device.step(*bad)
        return code, bytes(device.state) == before

    missing, infinite = [np.nan] * 3, [1.0, 1.0, np.inf]
    assert outcome("scaled", infinite) == (1, True)
    assert outcome("scaled", missing)[0] == 0
    assert outcome("lstm", missing) == (1, True)
    assert outcome("bank", missing)[0] == 0
    for elapsed in (0.0, -1.0, np.nan, np.inf, 1e9):
        assert outcome("stamped", [1.0] * 3, elapsed) == (2, True)
        assert outcome("bank_stamped", [1.0] * 3, elapsed) == (2, True)
    assert outcome("stamped", [1.0, np.inf, 1.0], 1.0)[0] == 0  # in a channel that is not used
    for symbol in (-1.0, 1.5, 5.0, np.nan, 1e30):
        assert outcome("one_hot", [symbol]) == (3, True)


def test_a_full_counter_is_reported(library):
    subject, program = VARIANTS["bank"], library[1]["bank"]
    device = Device(library[0], program, subject)
    offset = 0
    for field, (kind, size) in program.fields.items():
        if field == "samples":
            break
        offset += size * {"float": 4, "uint32_t": 4, "uint8_t": 1}[kind]
    for count, code in ((2**32 - 2, 0), (2**32 - 1, 4)):
        ctypes.memmove(ctypes.addressof(device.state) + offset, count.to_bytes(4, "little"), 4)
        assert device.step([0.1, 0.2, 0.3]) == code
        assert np.isfinite(device.answer).all()


HOSTILE = ['"; system("rm") ; "', "*/ int x; /*", "a\nb", "??/", "%s\\", "λ\x00", "'"]


def test_hostile_names_stay_strings(tmp_path):
    preparation = prepared(raw_channels=[*HOSTILE[:3]], channels=[*HOSTILE[:2]], classes=HOSTILE)
    torch.manual_seed(0)
    model = SequenceModel("rnn", input_size=2, output_size=len(HOSTILE), hidden_size=3)
    subject = Subject(model.eval(), preparation, tuple(HOSTILE), "*/ #error")
    shared, programs = compiled({'"; exit(1); //': subject}, tmp_path)
    ((_, program),) = programs.items()
    assert program.name.isidentifier()
    pointers = (ctypes.c_char_p * len(HOSTILE)).in_dll(shared, f"{program.name}_labels")
    expected = [label.encode().partition(b"\0")[0] for label in HOSTILE]
    assert [bytes(pointer) for pointer in pointers] == expected


def test_identifiers():
    assert identifier("recordings-lstm-1") == "recordings_lstm_1"
    assert identifier("int") == "model_int" and identifier("3d") == "model_3d"
    assert identifier("ü/") == "model" and identifier("Math") == "model_Math"


def test_the_label_follows_a_threshold(tmp_path):
    alarm = Alarm("x", 0.3, 0.95, 1.0, 1.0, (3, 3))
    subject = read_by("rnn", prepared(alarm=alarm.to_dict()))
    shared, programs = compiled({"m": subject}, tmp_path)
    device = Device(shared, programs["m"], subject)
    for row in ([0.4, 0.3, 0.2, 0.1], [0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]):
        label = alarm.label([*"wxyz"], np.array(row, dtype=np.float32))
        assert "wxyz"[device.label_function((ctypes.c_float * 4)(*row))] == label


RANGES = {
    "exp": (-87.0, 88.0),
    "log": (1e-30, 1e30),
    "log1p": (-0.9, 1e6),
    "tanh": (-20.0, 20.0),
    "sigmoid": (-80.0, 80.0),
    "sqrt": (1e-30, 1e30),
    "sin": (-8192.0, 8192.0),
    "cos": (-8192.0, 8192.0),
}


@pytest.mark.process
def test_errors_of_the_small_library(tmp_path):
    text = helper_text([*RANGES, "floor", "round"], "own", libm=False)
    loops = "".join(
        f"void run_{name}(float *x, int n) {{ for (int i = 0; i < n; i++) "
        f"x[i] = own_{name}(x[i]); }}\n"
        for name in (*RANGES, "floor", "round")
    )
    source = tmp_path / "own.c"
    source.write_text(f"#include <stdint.h>\n{text}\n{loops}")
    flags = [*STRICT, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", str(tmp_path / "own.so")]
    subprocess.run([COMPILERS[0], *flags, str(source)], check=True)
    shared, random = ctypes.CDLL(str(tmp_path / "own.so")), np.random.default_rng(0)

    def own(name, x):
        y = x.copy()
        getattr(shared, f"run_{name}")(y.ctypes.data_as(ctypes.c_void_p), len(y))
        return y

    for name, (low, high) in RANGES.items():
        x = random.uniform(low, high, 400_000)
        if low > 0:
            x = np.exp(random.uniform(np.log(low), np.log(high), 400_000))
        small = x[:200_000] * np.exp(random.uniform(-30, 0, 200_000)) if low <= 0 else x
        x = np.concatenate([x, small]).astype(np.float32)
        wide = x.astype(np.float64)
        exact = {"sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(name, getattr(np, name, None))(wide)
        scale = 1.0 if name in ("sin", "cos") else np.maximum(np.abs(exact), 1e-37)
        assert (np.abs(own(name, x) - exact) / scale).max() <= ERRORS[name], name
    for name in RANGES.keys() - {"log", "log1p", "sqrt"}:
        assert np.isnan(own(name, np.array([np.nan], dtype=np.float32))).all(), name
    edges = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, 3.7, -3.7], dtype=np.float32)
    for name, exact in (("floor", np.floor), ("round", np.round)):
        assert (own(name, edges) == exact(edges)).all()


def test_nothing_is_written_after_a_failure(tmp_path):
    subject = Subject(build("lstm"))
    with pytest.raises(RunError, match="was not written"):
        export_c(subject, tmp_path / "out", "m", tolerance=0.0)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="must be a folder"):
        export_c(subject, tmp_path / "file", "m")


def test_answer_rows_are_those_of_a_stream():
    """The oracle of these tests is what a stream prints."""
    subject = VARIANTS["forecast"]
    live = LiveModel(subject)
    live.push([1000.1, 0.0, 3.0])
    row = answer_row(subject, live.outputs()[0].double().numpy()).reshape(2, 2, 3)
    forecast = live.answer()["forecast"]
    assert np.allclose(row[:, 0, 1], forecast["b"]) and np.allclose(row[:, 1, 1], forecast["a"])


# Weights of 8 bits


def test_rows_are_rounded_to_their_own_scales():
    matrix = torch.tensor([[1.0, -0.5, 0.003], [0.0, 0.0, 0.0], [-2.54, 1.27, 0.01]])
    numbers, scale = quantise(matrix)
    assert numbers.tolist() == [[127, -64, 0], [0, 0, 0], [-127, 64, 0]]
    assert scale[0] == pytest.approx(1 / 127) and scale[2] == pytest.approx(0.02)


def test_int8_is_the_rounded_model(tmp_path):
    names = ("unicornn", "rellstm", "stamped", "bank", "cfc")
    subjects = {name: VARIANTS[name] for name in names}
    subjects |= {name: Subject(build(name)) for name in ("lstm", "gru", "rnn", "lmu", "urnn")}
    subjects["ornn"] = Subject(build("ornn", nonlinearity="relu"))
    shared, programs = compiled(subjects, tmp_path, int8=True)
    for name, subject in subjects.items():
        samples, times = random_samples(subject, 80, 1, np.random.default_rng(2))
        samples, times = samples[0], None if times is None else times[0]
        found = Device(shared, programs[name], subject).run(samples, times)
        rounded = expected_answers(subject, samples, times, int8=True)
        single = expected_answers(subject, samples, times)
        assert np.abs(found - rounded).max() < 1e-5 * max(1, np.abs(rounded).max())
        assert np.abs(rounded - single).max() > 1e-5  # something was rounded
        assert programs[name].constants.nbytes < program_of(subject, name).constants.nbytes


def test_constant_products_are_rounded_and_others_are_not():
    subject = Subject(build("rnn"))
    head = subject.model.head
    x = torch.randn(2, 6)
    with int8_weights(subject.model) as model:
        rounded = model.head(x)
        between = x @ x.T
    numbers, scale = quantise(head.weight.detach())
    exact = x @ (numbers * scale.unsqueeze(1)).T + head.bias
    assert torch.allclose(rounded, exact) and torch.equal(between, x @ x.T)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_a_sequence_is_rounded_as_its_steps_are(name):
    subject = Subject(build(name))
    samples, _ = random_samples(subject, 30, 1, np.random.default_rng(3))
    steps = expected_answers(subject, samples[0], None, int8=True)
    with int8_weights(subject.model) as model:
        whole = model(torch.from_numpy(samples[0]).float().unsqueeze(1))
    assert np.abs(whole.squeeze(0).numpy() - steps[-1]).max() < 1e-5


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    words = ["digits", "unicornn", "task.length=20", "model.hidden_size=6", "train.steps=2"]
    result = CliRunner().invoke(cli.app, ["train", *words, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder / "digits-unicornn-1"


def test_export_on_the_command_line(trained, tmp_path, monkeypatch):
    def call(*words):
        return CliRunner().invoke(cli.app, ["export", str(trained), *words])

    out = tmp_path / "new"
    printed = call("--c", "--out", str(out), "--libm", "none", "--int8", "--lose", "100", "--json")
    assert printed.exit_code == 0, printed.output
    result = json.loads(printed.stdout)
    assert result["difference"] < 1e-5 and result["int8"]["metric"] == "accuracy"
    assert sorted(p.name for p in out.iterdir()) == ["digits_unicornn_1.c", "digits_unicornn_1.h"]
    assert "math.h" not in (out / "digits_unicornn_1.c").read_text().partition("SELFTEST")[0]
    assert call("--c", "--name", "gesture").exit_code == 0
    assert (trained / "c" / "gesture.h").is_file()
    for words, message in (
        (["--c", "--onnx"], "one format"),
        (["--c", "--step"], "--step does not apply to --c"),
        (["--onnx", "--int8"], "--int8 does not apply to --onnx"),
        (["--c", "--lose", "3"], "--lose applies to --int8"),
        (["--c", "--int8", "--lose", "-1"], "at least 0"),
    ):
        assert message in str(call(*words).exception), words
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "-DDIGITS_UNICORNN_1_SELFTEST" in call("--c").output.replace("\n", "")


def test_a_run_of_another_version_is_refused(trained, tmp_path):
    copied = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("c"))
    settings = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps({**settings, "format": 99}))
    for words in (["export", str(copied), "--c"], ["cost", str(copied)]):
        message = str(CliRunner().invoke(cli.app, words).exception)
        assert "must have run format 1, got 99" in message
    assert not (copied / "c").exists()


@pytest.mark.parametrize("name", ["../../x", "", "while", "a/b\\c", 'x"; #error'])
def test_names_of_files_stay_in_their_folder(trained, tmp_path, name):
    words = ["export", str(trained), "--c", "--out", str(tmp_path / "out"), "--name", name]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert {path.parent for path in tmp_path.rglob("*.*")} == {tmp_path / "out"}
    assert all(path.stem.isidentifier() for path in (tmp_path / "out").iterdir())


def test_the_page_of_a_run_names_its_cost_on_a_device(trained):
    report = report_run(trained, compare=False, measured=[])
    assert any(
        "KB of flash" in sentence and "cortex-m4" in sentence for sentence in report.findings
    )


def test_int8_that_loses_too_much_is_refused(trained, tmp_path, monkeypatch):
    scores = iter([0.9, 0.85])
    monkeypatch.setattr(
        "undamped.lab.export.c.int8.evaluate",
        lambda *words: type("Scores", (), {"metric": next(scores)}),
    )
    words = ["export", str(trained), "--c", "--int8", "--out", str(tmp_path / "new")]
    message = str(CliRunner().invoke(cli.app, words).exception)
    assert "0.9 in single precision, 0.85 with 8-bit weights: 5 points lost" in message
    assert not (tmp_path / "new").exists()


# Costs and emulated boards


def test_costs_by_count():
    subject = devices.example("unicornn")
    program = program_of(subject, "m")
    # Two projections, the recurrence is elementwise, and the readout.
    assert program.products == 6 * 32 + 32 * 32 + 32 * 5
    assert program.operations["tanh"] == 2 * 32
    assert program.state_bytes == 2 * 2 * 32 * 4
    cost = estimate(program, "cortex-m4")
    assert cost.flash < 24 * 1024 and cost.ram < 1.5 * 1024
    assert cost.rate == pytest.approx(1e8 / cost.cycles)
    assert estimate(program, "cortex-m4", clock=50).rate == pytest.approx(5e7 / cost.cycles)
    assert estimate(program_of(subject, "m", int8=True), "cortex-m0+").flash < 8 * 1024
    refuse_large(cost, flash=cost.flash, ram=cost.ram)
    with pytest.raises(OptionError, match=rf"{cost.flash:,} bytes of flash"):
        refuse_large(cost, flash=cost.flash - 1, ram=None)
    with pytest.raises(OptionError, match=r"bytes of RAM on cortex-m4, more than 10"):
        refuse_large(cost, flash=None, ram=10)
    with pytest.raises(UnknownNameError, match="Unknown target 'z80'"):
        estimate(program, "z80")
    with pytest.raises(OptionError, match="positive number of MHz"):
        estimate(program, "x86", clock=0)


def test_cost_on_the_command_line(trained):
    words = ["cost", str(trained)]
    result = CliRunner().invoke(cli.app, [*words, "--json"])
    assert [entry["target"] for entry in json.loads(result.stdout)] == list(TARGETS)
    assert "samples/s" in CliRunner().invoke(cli.app, words).output
    refused = CliRunner().invoke(cli.app, [*words, "--target", "esp32", "--ram", "1"])
    assert "bytes of RAM" in str(refused.exception)


BOARDS = pytest.mark.skipif(
    not (emulator.can_compile() and shutil.which(emulator.EMULATOR)),
    reason="gcc-arm-none-eabi or qemu-system-arm is not installed",
)


@BOARDS
@pytest.mark.process
def test_a_board_gives_the_answers_of_the_host():
    files = c_files(devices.example("unicornn"), "unicornn", libm=False)
    cost = device_cost(files, "cortex-m4")
    assert cost.compiled.error < 1e-5
    assert cost.compiled.flash <= 24 * 1024 and cost.compiled.ram <= 1.5 * 1024
    assert cost.flash == pytest.approx(cost.compiled.flash, rel=0.2)
    counted = instructions(files.program, TARGETS["cortex-m4"])
    assert counted == pytest.approx(cost.compiled.instructions, rel=0.2)


@BOARDS
@pytest.mark.slow
@pytest.mark.parametrize("core", emulator.BOARDS)
@pytest.mark.parametrize("name", [*devices.NETWORKS, "bank", "stamped"])
def test_every_board_gives_the_answers_of_the_host(name, core):
    subject = VARIANTS[name] if name == "stamped" else devices.example(name)
    for int8 in (False, True):
        result = emulator.emulate(c_files(subject, name, libm=False, int8=int8), core)
        assert result.error < 1e-5
    if name == "unicornn":
        assert result.flash <= 8 * 1024


@BOARDS
@pytest.mark.process
def test_the_benchmark_of_devices():
    result = devices.run(quick=True)
    assert [row[:3] for row in result.tables[0].rows] == [
        ["unicornn", "float32", "cortex-m4"],
        ["unicornn", "int8", "cortex-m4"],
        ["unicornn", "integer", "cortex-m4"],
    ]
    assert result.numbers["unicornn float32 host"]["samples_per_second"] > 0


# The bank as ONNX


@pytest.mark.parametrize("name", [name for name in VARIANTS if "bank" in name])
def test_a_bank_is_exported_to_onnx(name):
    from undamped.lab.export.onnx_file import check_sequence, check_step

    subject = VARIANTS[name]
    assert check_sequence(sequence_model(subject), subject) < 1e-5
    assert check_step(step_model(subject), subject) < 1e-5
