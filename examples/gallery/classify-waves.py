"""Classify recordings

A thousand fixed oscillators respond to every recording; a ridge regression reads their motion.
"""

import matplotlib.pyplot as plt
import numpy as np

import undamped

random = np.random.default_rng(0)
labels = np.array(["sine", "square", "saw"] * 20)
shapes = {
    "sine": np.sin,
    "square": lambda p: np.sign(np.sin(p)),
    "saw": lambda p: p % 6.28 / 3.14 - 1,
}
series = []
for label in labels:
    phase = random.uniform(0, 6) + 0.2 * np.arange(120)
    series.append(shapes[label](phase) + 0.3 * random.normal(size=120))

classifier = undamped.SequenceClassifier("bank", random_state=0).fit(series[:40], labels[:40])
print(f"{classifier.score(series[40:], labels[40:]):.0%} of the held-out recordings are right")
figure, panels = plt.subplots(3, figsize=(6, 3.6), sharex=True)
for axes, values, label in zip(panels, series, labels, strict=False):
    axes.plot(values)
    axes.set_ylabel(label)
panels[-1].set_xlabel("step")
