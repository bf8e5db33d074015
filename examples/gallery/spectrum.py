"""Eigenvalues of a recurrent matrix

Eigenvalues inside the unit circle forget, those outside explode, those on it remember.
"""

import numpy as np

import undamped

matrix = np.random.default_rng(0).normal(size=(100, 100)) / 10
result = undamped.analysis.spectrum(matrix)
print(result.sentence)
