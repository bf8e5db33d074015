"""A forecast with a prediction interval

The band is calibrated on months that were held back.
"""

import matplotlib.pyplot as plt
import numpy as np

import undamped

months = np.arange(120)
noise = np.random.default_rng(0).normal(size=120)
sales = 100 + 0.8 * months + 20 * np.sin(2 * np.pi * months / 12) + 4 * noise
forecaster = undamped.SequenceForecaster(horizon=12, model="ridge-lags", season=12).fit(sales[:108])
low, middle, high = np.moveaxis(forecaster.predict(quantiles=(0.1, 0.5, 0.9)).reshape(12, 3), 1, 0)
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot(months[60:], sales[60:], color="black", label="sales")
axes.fill_between(months[108:], low, high, alpha=0.3, label="80 % band")
axes.plot(months[108:], middle, label="forecast")
axes.set(xlabel="month", ylabel="sales")
axes.legend()
