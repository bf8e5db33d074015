"""Long recordings: physiological signals, and series to forecast."""

from __future__ import annotations

from undamped.lab.data.published.conversions import series_to_forecast
from undamped.lab.data.published.sources import DataSet, File, Package, Pick, files, source

_SYSTOLE_FILES = files(
    ("Task1_ECG.npy", "Task1_Respiration.npy", "Task1_EDA.npy", "Task1_Stim.npy"),
    [12_292_688] * 4,
    (
        "7949947ec206785bd2e2bc007d7954edd1b8c4b2de19a07bdf68b66a8676bc40",
        "7bd8acde4cf5691d422b996714bdbca9a1f2dbd26e0847ab807eb4dbe20625bc",
        "ba1ad7b6f8f24e6fb919c13d47eef0058a856ac621b340a17bbccbf39a3bd8f4",
        "fe04b08f8679c1a1f8d842e9984e8bf598c885b15aaccf0a0a64fa0ee98698b6",
    ),
)

SYSTOLE = DataSet(
    name="systole",
    about="ECG, respiration, skin conductance and stimuli of one person: 25.6 minutes at 1000 Hz.",
    licence="GPL-3.0 (the package systole)",
    note="One person: split it by time; results do not generalise to other people.",
    sources=(
        source(
            Package(
                registry="sdist",
                package="systole",
                version="0.3.1",
                picks=tuple(
                    Pick(f"systole-0.3.1/src/systole/datasets/{file.name}", file.name)
                    for file in _SYSTOLE_FILES
                ),
                size=5_771_291,
                sha256="9bc145f7b87caa57b53e45f34276bcfefec101bc1c662e4e104f53fdfa5a405a",
            ),
            files=_SYSTOLE_FILES,
        ),
    ),
)

_FORECAST_FILES = (
    File("co2.csv", 13_413, "4489b1aec0d79f6c40d9fc543c70c159bf069a177e44a72dbe7dc6982116de85"),
    File("demand.csv", 24_199, "bb06c8221bd56a471c96cab2f3e35fc2019f2b8089cdc70368b36daa40f6aadc"),
    File("passengers.csv", 587, "c03d59e66c13d40861faeea1fa35e585f8a7d5cd6de046d3ee5800372897886b"),
    File("sunspots.csv", 1_387, "1cb74c0bf6188103106194c4895f8cba0bca94cfe2d606502152efbb5b8dd1b7"),
)

FORECASTS = DataSet(
    name="forecasts",
    about="Four series: yearly sunspots, weekly CO₂, monthly airline passengers, half-hourly "
    "electricity demand.",
    licence="public domain (sunspots, CO₂); otherwise as the packages statsmodels (BSD-3) and "
    "pmdarima (MIT)",
    note="Demand is that of England and Wales, 5 June to 27 August 2000 (Taylor, 2003).",
    sources=(
        source(
            Package(
                registry="wheel",
                package="statsmodels",
                version="0.15.0",
                file="statsmodels-0.15.0-cp311-cp311-manylinux_2_27_x86_64."
                "manylinux_2_28_x86_64.whl",
                picks=tuple(
                    Pick(f"statsmodels/datasets/{name}/{name}.csv", f"{name}.csv")
                    for name in ("co2", "sunspots")
                ),
                size=12_087_914,
                sha256="b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da",
            ),
            Package(
                registry="wheel",
                package="pmdarima",
                version="2.1.1",
                file="pmdarima-2.1.1-cp311-cp311-manylinux2014_x86_64."
                "manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl",
                # Without the suffix .py, so that it cannot be imported by accident.
                picks=tuple(
                    Pick(f"pmdarima/datasets/{name}.py", f"{name}.py.txt")
                    for name in ("airpassengers", "taylor")
                ),
                size=698_040,
                sha256="e8148ff1f4cdb9a07164247eb3e6dddc1baef6e226d38528bd3fdf5d160f8dee",
            ),
            files=_FORECAST_FILES,
            convert=series_to_forecast,
        ),
    ),
)

SETS = (SYSTOLE, FORECASTS)
