"""Fisher memory of a delay line

The information about an input of k steps ago, in a line of 50 units with noise.
"""

import numpy as np

import undamped

line = 0.98 * np.eye(50, k=-1)
result = undamped.analysis.fisher_memory(line, np.eye(50)[0], steps=80)
print(result.sentence)
