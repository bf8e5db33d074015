"""The copy task

Ten symbols, a long silence, then a signal to repeat them: an old test of memory.
"""

import matplotlib.pyplot as plt

import undamped

task = undamped.lab.tasks.build("copy", delay=40)
batch = task.batch("test", 0, 1)
figure, (above, below) = plt.subplots(2, figsize=(6, 3.4), sharex=True)
above.plot(batch.inputs[:, 0].squeeze(), ".")
above.set_ylabel("input")
below.plot(batch.targets[:, 0].squeeze(), ".")
below.set(xlabel="step", ylabel="answer")
