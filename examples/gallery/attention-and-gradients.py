"""Gradients under uniform attention

Attention to all past states makes gradients fall with a power of the length, not exponentially.
"""

import matplotlib.pyplot as plt
import numpy as np

from undamped.analysis import uniform_attention_gradient

steps = np.arange(1, 1025)
figure, axes = plt.subplots(figsize=(6, 3.4))
for eigenvalue in (0.3, 0.6, 0.9):
    sizes = np.abs(uniform_attention_gradient(eigenvalue, len(steps), mix="half"))
    axes.loglog(steps, sizes, label=f"eigenvalue {eigenvalue}")
axes.set(xlabel="length of the sequence", ylabel="size of the gradient")
axes.legend()
