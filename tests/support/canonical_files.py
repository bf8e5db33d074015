"""Tiny files in the formats that the real data sets come in."""

import csv
import gzip
import hashlib
import json
import pickle
import struct
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    kind = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
    head = struct.pack(">HBB", 0, kind[str(array.dtype)], array.ndim)
    return (
        head
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def mnist(folder: Path, *, train: int = 40, test: int = 20, compressed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        pictures = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in (("images-idx3", pictures), ("labels-idx1", labels)):
            path, content = folder / f"{part}-{name}-ubyte", idx(array)
            if compressed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)


def cifar_arrays(per_batch: int = 10) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Pictures (number, colour, row, column) and labels of the six files."""
    random = np.random.default_rng(1)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    return {
        name: (
            random.integers(0, 256, (per_batch, 3, 32, 32), dtype=np.uint8),
            [(i * 3) % 10 for i in range(per_batch)],
        )
        for name in names
    }


def cifar10(folder: Path, form: str = "binary") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = cifar_arrays()
    for name, (pictures, labels) in arrays.items():
        flat = pictures.reshape(len(pictures), -1)
        if form == "binary":
            records = np.concatenate([np.array(labels, np.uint8)[:, None], flat], 1)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        elif form == "pickle":
            content = {b"data": flat, b"labels": labels, b"batch_label": b"training"}
            (folder / name).write_bytes(pickle.dumps(content, protocol=3))
        else:
            from PIL import Image

            rows = pictures.transpose(0, 2, 3, 1).reshape(len(pictures), 1024, 3)
            Image.fromarray(rows).save(folder / f"{name}.png")
    if form == "picture":
        train = [
            label for n, (_, labels) in arrays.items() if n != "test_batch" for label in labels
        ]
        (folder / "train_lables.json").write_text(json.dumps(train))
        (folder / "test_lables.json").write_text(json.dumps(arrays["test_batch"][1]))


def ptb(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [" the <unk> fell N % to $ 1.5 \n", " mr. x said no \n"]
    for part, count in (("train", 40), ("valid", 8), ("test", 8)):
        text = "".join(lines[(i * i) % 2] for i in range(count))
        (folder / f"ptb.{part}.txt").write_text(text)


REVIEWS = [
    ("a good film<br /><br />I liked it, really!", 1),
    ("bad. I didn't like it", 0),
    ("good good good", 1),
    ("no story and a bad end", 0),
]


def imdb_half(folder: Path, count: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "imdb-half.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for i in range(count):
            text, label = REVIEWS[i % 4]
            table.writerow([f"{text} {i // 8}", label])


def imdb_folders(folder: Path, per_class: int = 6) -> None:
    for part in ("train", "test"):
        for name, label in (("pos", 1), ("neg", 0)):
            (folder / "aclImdb" / part / name).mkdir(parents=True)
            texts = [text for text, given in REVIEWS if given == label]
            for i in range(per_class):
                path = folder / "aclImdb" / part / name / f"{i}_7.txt"
                path.write_text(f"{texts[i % 2]} {part} {i}")


def glove(folder: Path, size: int = 100, packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["good", "bad", "film", "."]
    vectors = np.random.default_rng(2).normal(size=(4, size)).astype(np.float32)
    if packed:
        np.savez(folder / "glove.npz", words=np.array(names), vectors=vectors)
    else:
        lines = [f"{n} {' '.join(map(str, v))}\n" for n, v in zip(names, vectors, strict=True)]
        (folder / f"glove.6B.{size}d.txt").write_text("".join(lines))


def ucr(folder: Path, *, train: int = 12, test: int = 8, unequal: bool = False) -> None:
    """A set of two classes that differ in frequency, one test series a copy of a training one."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    rows = []
    for i in range(train + test):
        steps = np.arange(20 + (i % 5 if unequal else 0))
        wave = np.sin(steps * (0.3, 0.9)[i % 2]) + 0.1 * random.normal(size=len(steps))
        rows.append(f"{','.join(f'{value:.4f}' for value in wave)}:{('slow', 'fast')[i % 2]}")
    rows[train] = rows[0]
    head = "@problemName Waves\n@univariate true\n@classLabel true slow fast\n@data\n"
    for part, lines in (("TRAIN", rows[:train]), ("TEST", rows[train:])):
        path = folder / f"{folder.name}_{part}.ts"
        path.write_text(head + "\n".join(lines) + "\n")


def systole(folder: Path, seconds: int = 480) -> None:
    """Ten to twenty breaths and about seventy beats a minute, 1000 samples a second."""
    folder.mkdir(parents=True, exist_ok=True)
    time = np.arange(seconds * 1000) / 1000
    breath = np.cumsum(np.linspace(10, 20, len(time)) / 60 / 1000)
    beat = np.cumsum(np.linspace(65, 75, len(time)) / 60 / 1000) % 1
    ecg = np.exp(-(((beat - 0.5) / 0.02) ** 2)) * (1 + 0.1 * np.sin(2 * np.pi * breath))
    np.save(folder / "Task1_ECG.npy", ecg)
    np.save(folder / "Task1_Respiration.npy", np.sin(2 * np.pi * breath))


def record(folder: Path) -> None:
    """Write the record that fetching leaves behind."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    entries = [
        {
            "name": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in files
    ]
    (folder / "undamped.json").write_text(json.dumps({"source": "a test", "files": entries}))


def everything(root: Path) -> None:
    """Write tiny files of every set that a task asks for, as if they had been fetched."""
    mnist(root / "mnist")
    mnist(root / "fashion-mnist", compressed=True)
    cifar10(root / "cifar10")
    ptb(root / "ptb")
    imdb_half(root / "imdb")
    glove(root / "glove")
    systole(root / "systole")
    ucr(root / "ucr" / "GunPoint")
    for folder in [*(path for path in root.iterdir() if path.name != "ucr"), root / "ucr/GunPoint"]:
        record(folder)
