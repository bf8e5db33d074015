"""A matrix that grows before it decays

All eigenvalues are zero, yet a chain of units amplifies its input for as long as the chain is.
"""

import numpy as np

import undamped

chain = 1.05 * np.eye(60, k=-1)
result = undamped.analysis.normality(chain)
print(result.sentence)
