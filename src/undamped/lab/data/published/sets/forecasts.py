"""Series to forecast: sunspots, carbon dioxide, airline passengers, demand of electricity."""

from __future__ import annotations

from undamped.lab.data.published.conversions import series_to_forecast
from undamped.lab.data.published.sources import DataSet, File, Package, Pick, Source

_FILES = (
    File("co2.csv", 13_413, "4489b1aec0d79f6c40d9fc543c70c159bf069a177e44a72dbe7dc6982116de85"),
    File("demand.csv", 24_199, "bb06c8221bd56a471c96cab2f3e35fc2019f2b8089cdc70368b36daa40f6aadc"),
    File("passengers.csv", 587, "c03d59e66c13d40861faeea1fa35e585f8a7d5cd6de046d3ee5800372897886b"),
    File("sunspots.csv", 1_387, "1cb74c0bf6188103106194c4895f8cba0bca94cfe2d606502152efbb5b8dd1b7"),
)

FORECASTS = DataSet(
    name="forecasts",
    about="Four series: sunspots by the year, CO₂ by the week, airline passengers by the month, "
    "demand of electricity by the half-hour.",
    licence="public domain (sunspots, CO₂); those of the packages statsmodels (BSD-3) and pmdarima "
    "(MIT)",
    place="forecasts",
    note="Demand is that of England and Wales, 5 June to 27 August 2000 (Taylor, 2003).",
    sources=(
        Source(
            (
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
                    # Not called .py, so that nothing can import it by accident.
                    picks=tuple(
                        Pick(f"pmdarima/datasets/{name}.py", f"{name}.py.txt")
                        for name in ("airpassengers", "taylor")
                    ),
                    size=698_040,
                    sha256="e8148ff1f4cdb9a07164247eb3e6dddc1baef6e226d38528bd3fdf5d160f8dee",
                ),
            ),
            _FILES,
            series_to_forecast,
        ),
    ),
)

SETS = (FORECASTS,)
