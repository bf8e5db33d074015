"""Damaged files for every parser: each is read, or refused in a sentence, and nothing else.

`python tests/support/fuzz.py --files 10000` mutates valid files by a seed and gives them to the
parsers, each in a process of its own with limits on time and memory, and prints a table.
A file is made again with `--parser NAME --only INDEX --keep FOLDER`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from canonical_files import idx
from safetensors.torch import load, save

from undamped._base.errors import UndampedError
from undamped.lab.benchmarks.memory_report import Summary, heat_map, summarise
from undamped.lab.benchmarks.memory_scores import Score
from undamped.lab.cli.settings import read_settings
from undamped.lab.cli.verbs.doctor import _arrays
from undamped.lab.data.published.formats.images import _cifar_pickle, read_idx
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.export import subject_of
from undamped.lab.export.live import LiveModel
from undamped.lab.files import _CHECKSUM, _FORMAT, _checksum
from undamped.lab.report import ModelReport
from undamped.lab.report.model_report import plots
from undamped.lab.report.watch import Watch
from undamped.lab.sweeps import Plan, SweepFolder, importances, trials_of
from undamped.lab.sweeps.sweep import open_study
from undamped.lab.training import Run, fit
from undamped.lab.training.checkpoint import load_checkpoint, restore
from undamped.lab.training.optimizers import build_optimizer

SECONDS = 10
"""Of the processor, after which a file counts as a hang."""
MEMORY = 2 << 30
"""Bytes that a parser may take beyond what the imports took."""
LONGEST = 2000
"""Characters of a message; longer ones quote the file."""
WORDS = [
    b"", b"0", b"-1", b"1e400", b"1e5574076640326", b"1e2147483648", b"1e-4294967297", b"nan",
    b"inf", b"9" * 5000, b"18446744073709551616", b"\0", b'"', b"'", b",", b"\n", b"\r", b"\t",
    b"[" * 3000, b"{" * 3000, b"(" * 3000, b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"null",
    b"true", b"[]", b"{}", b"=", b"..", b"x" * 5000, "é∞".encode(), b"<script>", b"%s",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1e308, 10**25, "", "x", "<b>", [], {}, [[]], [None], {"a": 1}, [1, 2, 3],
    "x" * 5000, float("nan"), float("inf"), [[[[1]]]], {"name": []},
]  # fmt: skip


# How files are damaged


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few random changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        place = rng.randrange(len(data) + 1)
        end = min(len(data), place + rng.choice((1, 2, 8, 64, 1000)))
        match rng.randrange(9):
            case 0 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case 1 if place < len(data):
                data[place] = rng.randrange(256)
            case 2:
                del data[place:end]
            case 3:
                data[place:place] = data[place:end]
            case 4:
                data[place:place] = rng.choice(WORDS)
            case 5:
                data[place:end] = rng.choice(WORDS)
            case 6 if rng.random() < 0.3:
                del data[place:]
            case 7:
                numbers = list(re.finditer(rb"\d[\d.]*", data))
                if numbers:
                    number = rng.choice(numbers)
                    data[number.start() : number.end()] = rng.choice(WORDS)
            case 8:
                lines = bytes(data).split(b"\n")
                rng.shuffle(lines)
                data = bytearray(b"\n".join(lines)) if rng.random() < 0.2 else data
    return bytes(data)


def damaged_json(content: bytes, rng: random.Random) -> bytes:
    """Return JSON of another form, or damaged bytes of it."""
    if rng.random() < 0.3:
        return damaged(content, rng)
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        places = list(_places(value)) if isinstance(value, (dict, list)) else []
        owner, key = rng.choice(places or [(None, None)])
        if owner is None:
            value = copy.deepcopy(rng.choice(VALUES))
        elif rng.random() < 0.25:
            del owner[key]
        else:
            owner[key] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def damaged_lines(content: bytes, rng: random.Random) -> bytes:
    """Return a file of JSON lines in which one has another form, or damaged bytes of it."""
    lines = content.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            return damaged(content, rng)
        case 1:
            del lines[number]
        case _:
            lines[number] = damaged_json(lines[number], rng).replace(b"\n", b" ") + b"\n"
    return b"".join(lines)


def damaged_archive(content: bytes, rng: random.Random) -> bytes:
    """Return an archive with a damaged member, or damaged bytes of it."""
    if rng.random() < 0.5:
        return damaged(content, rng)
    made = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            member = old.read(name)
            kind = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            new.writestr(name, damaged(member, rng) if name == chosen else member, kind)
    return made.getvalue()


def damaged_tensors(content: bytes, rng: random.Random) -> bytes:
    """Return tensors, or a header, of another form under a right checksum; or damaged bytes."""
    if rng.random() < 0.5:
        return damaged(content, rng)
    tensors = load(content)
    size = struct.unpack("<Q", content[:8])[0]
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    metadata.pop(_CHECKSUM, None)
    others = sorted(metadata.keys() - {_FORMAT})
    if others and rng.random() < 0.8:
        name = rng.choice([*others, _FORMAT])
        metadata[name] = damaged_json(metadata[name].encode(), rng).decode(errors="replace")
    else:
        name = rng.choice(list(tensors))
        old = tensors.pop(name)
        new = rng.choice((old.double(), old.reshape(-1)[:1], old.to(torch.int8), old[None]))
        tensors[rng.choice((name, name, "other", "optimizer/x/y", "carried/0/0"))] = new.clone()
    metadata[_CHECKSUM] = _checksum(tensors, metadata)
    return save(tensors, metadata)


# What is read


@dataclass(frozen=True)
class Parser:
    """A parser with valid files for it.

    Args:
        files: Contents that it reads.
        name: What the file is called in the folder it lies in.
        read: Reads it.
        damage: How its files are damaged.
        beside: What else has to lie in the folder.
    """

    files: list[bytes]
    name: str
    read: Callable[[Path], object]
    damage: Callable[[bytes, random.Random], bytes] = damaged
    beside: Path | None = None


def parsers(folder: Path) -> dict[str, Parser]:
    """Return all parsers; what they read is made below a folder."""
    return {**_tables(), **_series(), **_pictures(), **_runs(folder), **_sweeps(folder)}


def _table() -> pd.DataFrame:
    steps = np.arange(24)
    values = np.sin(steps[:, None] / (2, 3)).round(3)
    table = pd.DataFrame(values, columns=["x", "y"])
    table.insert(0, "id", steps // 4)
    table["label"] = np.where(steps // 4 % 2, "up", "down")
    return table


def _tables() -> dict[str, Parser]:
    table = _table()
    text = [table.to_csv(index=False, sep=sep).encode() for sep in ",\t"]
    quoted = table.assign(label='"a, ""b"""').to_csv(index=False).encode()
    dates = pd.date_range("2026-01-01", periods=24, freq="h")
    future = table[["x", "y"]].assign(time=dates).to_csv(index=False).encode()
    parquet = []
    for frame in (table, table.set_index("id"), table.assign(time=dates)):
        made = BytesIO()
        frame.to_parquet(made)
        parquet.append(made.getvalue())

    def ahead(path: Path) -> object:
        return read_recordings(path, needs_target=False, forecast=True)

    return {
        "CSV table": Parser([text[0], quoted], "a.csv", read_recordings),
        "CSV for forecasts": Parser([future], "a.csv", ahead),
        "tab-separated table": Parser([text[1]], "a.csv", read_recordings),
        "Parquet": Parser(parquet, "a.parquet", read_recordings),
    }


def _series() -> dict[str, Parser]:
    rows = [f"{n % 2}\t" + "\t".join(f"{n / 7 + k:.2f}" for k in range(6)) for n in range(4)]
    ts = [
        b"# words\n@problemName a\n@timeStamps false\n@classLabel true a b\n@data\n"
        b"1,2,3:4,5,?:a\n1.5,2e1,NaN:4,5,6:b\n",
        b"@timeStamps true\n@targetlabel true\n@data\n(0,1.5),(1,2),(3,4):0.5\n(0,1),(2,3):1\n",
    ]
    head = b"% words\n@relation a\n@attribute x numeric\n@attribute class {a,b}\n@data\n"
    arff = [head + b"1,2,3,a\n4,?,6,b\n", head + b"'1,2\\n3,4',a\n'5,6e1\\n?,8',b\n"]
    x = np.linspace(0, 1, 60, dtype=np.float32).reshape(5, 6, 2)
    arrays, single, batch = BytesIO(), BytesIO(), BytesIO()
    np.savez(batch, inputs=x, lengths=[6, 5, 4, 3, 2], targets=np.arange(5.0))
    np.savez(
        arrays, X=x, y=np.array(list("abaab")), lengths=[6, 5, 4, 3, 2],
        times=np.arange(30.0).reshape(5, 6), ids=np.array(list("vwxyz")), groups=np.arange(5),
    )  # fmt: skip
    np.save(single, x.astype(np.float64))
    return {
        ".ts": Parser(ts, "a.ts", read_recordings),
        ".arff": Parser(arff, "a.arff", read_recordings),
        "UCR .tsv": Parser(["\n".join(rows).encode()], "a_TRAIN.tsv", read_recordings),
        ".npy": Parser([single.getvalue()], "a.npy", read_recordings),
        ".npz": Parser([arrays.getvalue()], "a.npz", read_recordings, damaged_archive),
        ".npz of the doctor": Parser([batch.getvalue()], "a.npz", _arrays, damaged_archive),
    }


def _pictures() -> dict[str, Parser]:
    pixels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    batch = {b"data": pixels, b"labels": [1, 2], b"batch_label": b"one"}
    pickles = [pickle.dumps(batch, protocol=protocol) for protocol in (3, 4)]
    arrays = [idx(np.arange(24, dtype=kind).reshape(2, 3, 4)) for kind in (np.uint8, np.int32)]
    return {
        "IDX": Parser(arrays, "a-ubyte", read_idx),
        "CIFAR pickle": Parser(pickles, "data_batch_1", _cifar_pickle),
    }


def _runs(folder: Path) -> dict[str, Parser]:
    file = folder / "a.csv"
    file.write_bytes(_table().to_csv(index=False).encode())
    trained = fit(
        "gru", "recordings", task_options={"file": str(file)}, model_options={"hidden_size": 3},
        train={"steps": 2}, out=folder, progress=False,
    )  # fmt: skip
    waves = folder / "waves.csv"
    waves.write_text("x,y\n" + "".join(f"{np.sin(t):.3f},{np.cos(t):.3f}\n" for t in range(60)))
    ahead = fit(
        "gru", "recordings", task_options={"file": str(waves), "horizon": 2, "window": 6},
        model_options={"hidden_size": 3}, train={"steps": 2}, out=folder, progress=False,
    )  # fmt: skip
    model, options = trained.empty_model(), trained.train_options()

    def whole_run(path: Path) -> None:
        run = Run.open(path.parent)
        run.preparation()
        run.bands()
        run.train_options()
        run.empty_model()
        run.task()
        Watch.state(SimpleNamespace(path=path.parent))  # type: ignore[arg-type]

    def metrics(path: Path) -> None:
        Watch.state(SimpleNamespace(path=path.parent))  # type: ignore[arg-type]
        plots([ModelReport("run", curve=Run(path.parent).metrics())])

    def checkpoint(path: Path) -> None:
        optimizer = build_optimizer(model, options)
        restore(load_checkpoint(path), model, optimizer, str(path))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()

    def weights(path: Path) -> None:
        Run(path.parent).load_into(model)

    subject = subject_of(trained)
    live = LiveModel(subject)
    live.push([0.5] * subject.model.input_size)
    live.save_state(folder / "state")

    def stream(path: Path) -> None:
        live = LiveModel(subject)
        live.load_state(path)
        live.push([0.5] * subject.model.input_size)
        live.answer()

    content = {name: (trained.path / name).read_bytes() for name in ("metrics.csv", "run.json")}
    forecasts = (ahead.path / "run.json").read_bytes()
    model_file = (trained.path / "model.safetensors").read_bytes()
    last = trained.checkpoint.read_bytes()
    toml = (
        b'seed = 3\n[task]\nname = "copy"\ndelay = 10\n[model]\nname = "unicornn"\n'
        b"hidden_size = 8\n[train]\nsteps = 5\nlearning_rate = 1e-3\nclip = 1.5\n"
    )

    def settings(path: Path) -> None:
        asked = read_settings([], path)
        if len(asked.names) == 2:
            asked.task_options(asked.names[0])
            asked.model_options(asked.names[1])
            asked.train_options()

    def scores(path: Path) -> None:
        read = [Score.read(path)]
        report = summarise(read)
        report.markdown(), report.to_dict()
        if Summary(read).columns:
            plt.close(heat_map(Summary(read)))

    score = asdict(Score("flags", "latch", 128, 0, False, 0.1, {"64": 0.5}, 400, 30.0, 31.0, 9, 99))
    return {
        "scores of the memory benchmark": Parser(
            [json.dumps(score).encode()], "a.json", scores, damaged_json
        ),
        "model.safetensors": Parser([model_file], "model.safetensors", weights, damaged_tensors),
        "checkpoint": Parser([last], "last.safetensors", checkpoint, damaged_tensors),
        "state of a stream": Parser(
            [(folder / "state").read_bytes()], "a.state", stream, damaged_tensors
        ),
        "metrics.csv": Parser([content["metrics.csv"]], "metrics.csv", metrics),
        "run.json": Parser(
            [content["run.json"], forecasts], "run.json", whole_run, damaged_json, trained.path
        ),
        "TOML": Parser([toml], "a.toml", settings),
    }


def _sweeps(folder: Path) -> dict[str, Parser]:
    fixed = {"task": {"length": 5}, "train": {"steps": 2}}
    plan = Plan("adding", "rnn", fixed, {"train.learning_rate": "1e-3..1e-1:log"}, pruner="none")
    begun = SweepFolder.join(folder / "sweep", plan, "mse", False)
    study = open_study(begun)
    for number in range(3):
        trial = study.ask()
        trial.suggest_float("train.learning_rate", 1e-3, 1e-1, log=True)
        trial.report(0.5, 1)
        trial.set_user_attr("machine", begun.identity)
        study.tell(trial, 1.0 / (number + 1))

    def journal(path: Path) -> None:
        there = SweepFolder.open(path.parent)
        study = open_study(there)
        trials_of(there, study)
        importances(study)

    def plan_of(path: Path) -> None:
        there = SweepFolder.open(path.parent)
        str(there.plan), there.metric.upper(), there.identity.upper()

    log, stored = ((begun.path / name).read_bytes() for name in ("journal.log", "sweep.json"))
    return {
        "sweep journal": Parser([log], "journal.log", journal, damaged_lines, begun.path),
        "sweep.json": Parser([stored], "sweep.json", plan_of, damaged_json, begun.path),
    }


# Processes and their limits


class HangError(BaseException):
    """A file took too long."""


def made(parser: Parser, name: str, seed: int, index: int) -> bytes:
    """Return the damaged file with a number."""
    rng = random.Random(f"{seed}/{name}/{index}")
    while (content := parser.damage(valid := rng.choice(parser.files), rng)) == valid:
        pass
    return content


def outcome(parser: Parser, content: bytes, folder: Path) -> tuple[str, str]:
    """Read a file; return what came of it, and where it failed."""

    def stop(*_: object) -> None:
        raise HangError

    path = folder / parser.name
    path.write_bytes(content)
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        parser.read(path)
    except UndampedError as error:
        return ("long message" if len(str(error)) > LONGEST else "clear"), ""
    except HangError:
        return "hang", ""
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in place if "/undamped/" in frame.filename] or place
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        return "other", f"{type(error).__name__} at {where}: {str(error)[:80]!r}"
    else:
        return "accepted", ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _work(parser: Parser, name: str, seed: int, numbers: range, pipe: int) -> None:
    """Be a process that reads files; a line before and after each says how far it is."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as place:
        os.environ["UNDAMPED_DATA"] = f"{place}/cache"
        folder = Path(place, "files")
        if parser.beside is not None:
            shutil.copytree(parser.beside, folder)
        else:
            folder.mkdir()
        for valid in parser.files:
            parser_says = outcome(parser, valid, folder)
            assert parser_says == ("accepted", ""), (name, parser_says)
        for index in numbers:
            os.write(pipe, f"{index}\n".encode())
            content = made(parser, name, seed, index)
            os.write(pipe, (json.dumps(outcome(parser, content, folder)) + "\n").encode())


@dataclass
class Tally:
    """What came of the files of a parser."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[int]] = field(default_factory=dict)

    def add(self, kind: str, index: int, why: str = "") -> None:
        """Count a file."""
        self.counts[kind] += 1
        if kind not in ("clear", "accepted"):
            self.failures.setdefault(f"{kind} {why}".strip(), []).append(index)


def run_parser(parser: Parser, name: str, seed: int, files: int) -> Tally:
    """Give a parser its files, in a new process after each that ended the one before."""
    tally, start = Tally(), 0
    while start < files:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            try:
                _work(parser, name, seed, range(start, files), write)
            except BaseException:  # of this program: a parser's are caught
                traceback.print_exc()
                os._exit(3)
            os._exit(0)
        os.close(write)
        start = _follow(read, child, tally, start)
    return tally


def _follow(read: int, child: int, tally: Tally, start: int) -> int:
    """Read what a process says until it ends; return the number of the next file."""
    now, reading = start, False
    with os.fdopen(read, "rb", buffering=0) as pipe:
        rest = b""
        while True:
            # Longer than the alarm, on a busy machine too: code below Python does not hear it.
            if not select.select([pipe], [], [], 30 * SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
            chunk = pipe.read(1 << 16)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"["):
                    kind, why = json.loads(line)
                    tally.add(kind, now, why)
                    now, reading = now + 1, False
                else:
                    now, reading = int(line), True
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("this program failed, not a parser; see above")
    if reading:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        tally.add("hang" if killed else "crash", now, f"status {status}")
        now += 1
    return now


def main() -> int:
    """Run the command line; the exit code says whether all files were read or refused."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=200, help="files per parser")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parser", action="append", help="only this one; may be repeated")
    options.add_argument("--only", type=int, help="read one file here, with its traceback")
    options.add_argument("--keep", type=Path, help="folder in which that file is left")
    asked = options.parse_args()
    torch.set_num_threads(1)
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        everything = parsers(Path(place))
        names = asked.parser or list(everything)
        if asked.only is not None:
            [name] = names
            content = made(everything[name], name, asked.seed, asked.only)
            folder = Path(place, "one")
            beside = everything[name].beside
            folder.mkdir() if beside is None else shutil.copytree(beside, folder)
            (folder / everything[name].name).write_bytes(content)
            if asked.keep is not None:
                shutil.copytree(folder, asked.keep, dirs_exist_ok=True)
            everything[name].read(folder / everything[name].name)
            return 0
        kinds = ("clear", "accepted", "other", "long message", "hang", "crash")
        print("| parser | files | " + " | ".join(kinds) + " | CPU seconds |")
        print("|---" * (len(kinds) + 3) + "|", flush=True)
        for name in names:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            tally = run_parser(everything[name], name, asked.seed, asked.files)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cells = [f"{tally.counts[kind]:,}" for kind in kinds]
            print(f"| {name} | {asked.files:,} | {' | '.join(cells)} | {spent:.1f} |", flush=True)
            for why, places in tally.failures.items():
                bad += len(places)
                print(f"{name}: {len(places)}x {why}, files {places[:5]}", file=sys.stderr)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
