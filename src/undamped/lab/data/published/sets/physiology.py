"""Physiology: a long recording of heart and breath."""

from __future__ import annotations

from undamped.lab.data.published.sources import DataSet, File, Package, Pick, Source

_FILES = (
    File(
        "Task1_ECG.npy",
        12_292_688,
        "7949947ec206785bd2e2bc007d7954edd1b8c4b2de19a07bdf68b66a8676bc40",
    ),
    File(
        "Task1_Respiration.npy",
        12_292_688,
        "7bd8acde4cf5691d422b996714bdbca9a1f2dbd26e0847ab807eb4dbe20625bc",
    ),
    File(
        "Task1_EDA.npy",
        12_292_688,
        "ba1ad7b6f8f24e6fb919c13d47eef0058a856ac621b340a17bbccbf39a3bd8f4",
    ),
    File(
        "Task1_Stim.npy",
        12_292_688,
        "fe04b08f8679c1a1f8d842e9984e8bf598c885b15aaccf0a0a64fa0ee98698b6",
    ),
)

SYSTOLE = DataSet(
    name="systole",
    about="ECG, respiration, skin conductance and stimuli of one person: 25.6 minutes at 1000 Hz.",
    licence="GPL-3.0 (the package systole, whose recording it is)",
    place="systole",
    note="One person: split it by time, and do not speak of other people's hearts.",
    sources=(
        Source(
            (
                Package(
                    registry="sdist",
                    package="systole",
                    version="0.3.1",
                    file="systole-0.3.1.tar.gz",
                    picks=tuple(
                        Pick(f"systole-0.3.1/src/systole/datasets/{file.name}", file.name)
                        for file in _FILES
                    ),
                    size=5_771_291,
                    sha256="9bc145f7b87caa57b53e45f34276bcfefec101bc1c662e4e104f53fdfa5a405a",
                ),
            ),
            _FILES,
        ),
    ),
)

SETS = (SYSTOLE,)
