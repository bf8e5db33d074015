"""A trained network of the zoo

`latch` was trained on sequences of at most 96 steps. Its accuracy on longer ones is in its run.
"""

import matplotlib.pyplot as plt

import undamped

run = undamped.load("flags-latch")
rows = [row for row in run.metrics() if "valid_accuracy" in row]
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot([row["step"] for row in rows], [row["valid_accuracy"] for row in rows])
axes.set(xlabel="update", ylabel="validation accuracy", ylim=(0, 1.05))
for split, scores in run.result.items():
    if split.endswith("steps") and isinstance(scores, dict):
        print(f"accuracy at {split}: {scores['accuracy']:.0%}")
