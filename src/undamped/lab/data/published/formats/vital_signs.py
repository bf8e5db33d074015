"""Heart and respiratory rates: from signals, of a recording in windows, of simulated subjects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from undamped._base.errors import OptionError
from undamped.lab.data.published.arrays import DAMAGE, damaged
from undamped.lab.data.recordings.series import SeriesSet

Rate = Literal["respiratory", "heart"]
SAMPLES_PER_SECOND = 125
WINDOW_SECONDS = 32
STEPS = SAMPLES_PER_SECOND * WINDOW_SECONDS
_RECORDED_PER_SECOND = 1000
_RESPIRATORY_MODULATION = 0.15  # of the amplitude of a simulated ECG


def systole_windows(folder: Path, rate: Rate, stride_seconds: float) -> SeriesSet:
    """Cut the ECG and respiration of the systole package into labelled windows.

    Both signals are resampled from 1000 to 125 Hz and cut into windows of 32 seconds; the target
    of a window is the rate measured in it.

    Args:
        folder: Contains Task1_ECG.npy and Task1_Respiration.npy.
        rate: Which rate is the target, in events per minute.
        stride_seconds: Seconds from one window to the next.

    Returns:
        Windows (4000, 2) with their positions in the recording, so that they can be split by time.
    """
    from scipy.signal import decimate

    signals = []
    for name in ("Task1_ECG.npy", "Task1_Respiration.npy"):
        signal = _load(folder / name)
        signals.append(decimate(signal, _RECORDED_PER_SECOND // SAMPLES_PER_SECOND, ftype="fir"))
    if len(signals[0]) != len(signals[1]) or len(signals[0]) < 3 * STEPS:
        sizes = f"{len(signals[0])} and {len(signals[1])} samples"
        raise damaged(folder, f"has signals of {sizes}, too short or of unequal length")
    values = np.stack(signals, axis=1).astype(np.float32)
    recording = SeriesSet.of([values], channels=["ecg", "respiration"], source="systole")
    cut = recording.windows(STEPS, max(1, round(stride_seconds * SAMPLES_PER_SECOND)))
    measure = respiratory_rate if rate == "respiratory" else heart_rate
    column = 1 if rate == "respiratory" else 0
    targets = np.array([measure(window[:, column]) for window in cut.series])
    measurable = np.flatnonzero(np.isfinite(targets))
    return replace(
        cut.take(measurable),
        targets=targets[measurable],
        source="systole, one person, 25.6 minutes",
    )


def simulated_subjects(rate: Rate, subjects: int, windows: int, seed: int) -> SeriesSet:
    """Simulate ECG and respiration of several people with neurokit2.

    Every person has a heart rate, a respiratory rate and a noise level, and windows deviate a
    little from them. The amplitude of the ECG is modulated by respiration, as in real recordings.

    Args:
        rate: Which rate is the target, in events per minute.
        subjects: How many people.
        windows: Windows per person.
        seed: The seed of the simulation.

    Returns:
        Windows (4000, 2) with the subject as their group.
    """
    try:
        import neurokit2
    except ModuleNotFoundError:
        raise OptionError(
            "Simulated subjects need the package neurokit2. Install it with pip install "
            "'undamped[simulation]'."
        ) from None
    series, targets, groups = [], [], []
    random = np.random.default_rng(seed)
    for subject in range(subjects):
        heart, breath = random.uniform(50, 110), random.uniform(8, 28)
        noise = random.uniform(0.01, 0.1)
        for _ in range(windows):
            # Any: the type stubs of neurokit2 require integer rates, its functions do not.
            beats: Any = heart * random.uniform(0.93, 1.07)
            breaths: Any = breath * random.uniform(0.93, 1.07)
            common: dict[str, Any] = {
                "duration": WINDOW_SECONDS,
                "sampling_rate": SAMPLES_PER_SECOND,
                "noise": noise,
                "random_state": int(random.integers(2**31)),
            }
            lungs = neurokit2.rsp_simulate(**common, respiratory_rate=breaths)
            ecg = neurokit2.ecg_simulate(**common, heart_rate=beats, method="simple")
            swing = 1 + _RESPIRATORY_MODULATION * np.asarray(lungs) / max(1e-9, np.std(lungs))
            series.append(np.stack([np.asarray(ecg) * swing, np.asarray(lungs)], axis=1))
            targets.append(breaths if rate == "respiratory" else beats)
            groups.append(f"subject {subject}")
    return SeriesSet.of(
        series,
        np.array(targets),
        channels=["ecg", "respiration"],
        groups=groups,
        source=f"{subjects} simulated people",
    )


def respiratory_rate(signal: np.ndarray, per_second: int = SAMPLES_PER_SECOND) -> float:
    """Return breaths per minute from the mean distance of breaths; NaN if there are under two."""
    from scipy.signal import butter, find_peaks, sosfiltfilt

    smooth = sosfiltfilt(butter(2, (0.08, 0.7), "bandpass", fs=per_second, output="sos"), signal)
    peaks, _ = find_peaks(smooth, distance=per_second, prominence=0.5 * np.std(smooth))
    return _per_minute(peaks, per_second)


def heart_rate(signal: np.ndarray, per_second: int = SAMPLES_PER_SECOND) -> float:
    """Return beats per minute from the median distance of R peaks; NaN if there are under two."""
    from scipy.signal import butter, find_peaks, sosfiltfilt

    sharp = sosfiltfilt(butter(2, (5, 20), "bandpass", fs=per_second, output="sos"), signal)
    energy = sharp**2
    limit = 0.3 * np.quantile(energy, 0.99)
    peaks, _ = find_peaks(energy, distance=round(0.33 * per_second), height=limit)
    return _per_minute(peaks, per_second, median=True)


def _per_minute(peaks: np.ndarray, per_second: int, *, median: bool = False) -> float:
    if len(peaks) < 2:
        return float("nan")
    distances = np.diff(peaks)
    typical = np.median(distances) if median else np.mean(distances)
    return float(60 * per_second / typical)


def _load(path: Path) -> np.ndarray:
    try:
        signal = np.load(path, allow_pickle=False)
    except DAMAGE:
        signal = None
    if not isinstance(signal, np.ndarray) or signal.ndim != 1 or signal.dtype.kind not in "fiu":
        raise damaged(path, "is not a .npy file with one signal")
    return signal.astype(np.float64)
